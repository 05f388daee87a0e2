#include "config/confinement.h"

#include <libgen.h>
#include <link.h>
#include <sys/stat.h>

#include "confine/confine.h"

/* What the C library, OpenSSL, Kerberos and the profiler read of a system; no homes and no data of
 * other services (/home, /root, /var, /srv, /tmp). /proc shows of other processes what everybody
 * may see; their memory and variables Landlock itself hides. */
static const char *const system_folders[] = {
    "/usr", "/lib", "/lib64", "/etc", "/proc", "/sys", "/run", "/nix/store", "/var/lib/sss", "/dev",
};

/* Variables of OpenSSL and the C library whose values are files or folders. */
static const char *const variables[] = {"SSL_CERT_FILE", "SSL_CERT_DIR", "OPENSSL_CONF",
                                        "OPENSSL_MODULES", "TZDIR"};
static const char *const kerberos_variables[] = {"KRB5_CONFIG", "KRB5_KTNAME",
                                                 "KRB5_CLIENT_KTNAME"};

/* librdkafka's properties that are files or folders. */
static const char properties[] =
    "ssl.ca.location|ssl.certificate.location|ssl.key.location|ssl.crl.location|"
    "ssl.keystore.location|sasl.kerberos.keytab|https.ca.location";

struct paths {
    struct mr_confine_path *items;
    size_t count;
};

static void confinement_add(struct paths *paths, const char *path, unsigned access)
{
    paths->items = MR_REALLOC(paths->items, (paths->count + 1) * sizeof(*paths->items));
    paths->items[paths->count++] =
        (struct mr_confine_path){.path = MR_STRDUP(path), .access = access};
}

/* Folders that hold more than what one file in them is for. */
static bool is_broad(const char *folder)
{
    const char *home = getenv("HOME");
    return strcmp(folder, "/") == 0 || strcmp(folder, "/tmp") == 0 ||
           (home != NULL && strcmp(folder, home) == 0);
}

/* The folder that a file is in, or will be: the file may be replaced by another one of its name.
 * What may only be read opens no broad folder. */
static void add_folder_of(struct paths *paths, const char *path, unsigned access)
{
    MR_FREED char *copy = MR_STRDUP(path);
    const char *folder = dirname(copy);
    if (strcmp(folder, "/") != 0 && (access != MR_CONFINE_READ || !is_broad(folder))) {
        confinement_add(paths, folder, access);
    }
}

/* "probe" (librdkafka) and "system" (libpq) are no files. */
static void confinement_add_file(struct paths *paths, const char *path, unsigned access)
{
    if (path == NULL || path[0] == '\0' || mr_is_among("probe|system", mr_slice_of(path))) {
        return;
    }
    confinement_add(paths, path, access); /* a folder is meant as a whole */
    add_folder_of(paths, path, access);
    MR_FREED char *real = realpath(path, NULL);
    if (real != NULL) {
        confinement_add(paths, real, access);
        add_folder_of(paths, real, access);
    }
}

/* As Kerberos names files: with their kind in front, and others (KEYRING:, MEMORY:) are no
 * files. */
static void add_kerberos(struct paths *paths, const char *variable, unsigned access)
{
    const char *path = getenv(variable);
    if (path != NULL && (strncmp(path, "FILE:", 5) == 0 || strncmp(path, "DIR:", 4) == 0)) {
        path = strchr(path, ':') + 1;
    }
    if (path != NULL && path[0] == '/') {
        confinement_add_file(paths, path, access);
    }
}

static void add_read(void *context, const char *path)
{
    confinement_add_file(context, path, MR_CONFINE_READ);
}

/* The profiler reads the libraries' symbols, wherever they lie. */
static int add_library(struct dl_phdr_info *info, size_t size, void *context)
{
    if (info->dlpi_name[0] == '/') {
        confinement_add_file(context, info->dlpi_name, MR_CONFINE_READ);
    }
    return 0;
}

static void add_readable(struct paths *paths, const struct mr_config *config)
{
    for (size_t i = 0; i < MR_ARRAY_LEN(system_folders); i++) {
        confinement_add(paths, system_folders[i], MR_CONFINE_READ);
    }
    add_read(paths, "/proc/self/exe");
    add_read(paths, config->path); /* a reload reads it again */
    for (uint32_t i = 0; i < config->secrets.count; i++) {
        add_read(paths, config->secrets.items[i].path);
    }
    dl_iterate_phdr(add_library, paths);
    for (size_t i = 0; i < MR_ARRAY_LEN(variables); i++) {
        add_read(paths, getenv(variables[i]));
    }
    for (size_t i = 0; i < MR_ARRAY_LEN(kerberos_variables); i++) {
        add_kerberos(paths, kerberos_variables[i], MR_CONFINE_READ);
    }
    mr_pg_each_file(config->source.connection.conninfo, add_read, paths);
    if (config->source.copying.conninfo != NULL) {
        mr_pg_each_file(config->source.copying.conninfo, add_read, paths);
    }
    for (uint32_t i = 0; i < config->kafka.property_count; i++) {
        if (mr_is_among(properties, mr_slice_of(config->kafka.properties[i].name))) {
            add_read(paths, config->kafka.properties[i].value);
        }
    }
    const struct mr_strings *more = &config->values.hardening_readable;
    for (uint32_t i = 0; i < more->count; i++) {
        confinement_add(paths, more->items[i], MR_CONFINE_READ);
    }
}

/* Tickets are fetched and kept in the cache, which both libraries write. */
static void add_kerberos_cache(struct paths *paths)
{
    char usual[64];
    snprintf(usual, sizeof(usual), "/tmp/krb5cc_%u", (unsigned)getuid());
    confinement_add(paths, usual, MR_CONFINE_READ | MR_CONFINE_WRITE);
    add_kerberos(paths, "KRB5CCNAME", MR_CONFINE_READ | MR_CONFINE_WRITE);
}

/* Only a folder that is there can be allowed. Why it can't be made, the profiler says. */
static void add_profiles(struct paths *paths, const char *folder)
{
    if (folder[0] != '\0') {
        mkdir(folder, 0750);
        confinement_add(paths, folder, MR_CONFINE_READ | MR_CONFINE_WRITE);
    }
}

static void add_writable(struct paths *paths, const struct mr_config *config)
{
    unsigned both = MR_CONFINE_READ | MR_CONFINE_WRITE;
    confinement_add(paths, "/dev/null", both);
    add_kerberos_cache(paths);
    add_profiles(paths, config->values.profiling_path);
    if (config->sink_kind == MR_SINK_FILE) {
        confinement_add_file(paths, config->file_path,
                             both); /* in the root folder it must be there before */
    }
    if (config->http.enabled && config->http.address.is_unix) {
        add_folder_of(paths, config->http.address.path, MR_CONFINE_READ | MR_CONFINE_SOCKET);
    }
    if (getenv("MILLRACE_DUMPABLE") != NULL) {
        confinement_add(paths, ".", MR_CONFINE_WRITE); /* the core file */
    }
}

static mr_confined confine_files(const struct mr_config *config, bool programs,
                                 const char *const *written)
{
    struct paths paths = {0};
    add_readable(&paths, config);
    add_writable(&paths, config);
    for (; *written != NULL; written++) {
        confinement_add(&paths, *written, MR_CONFINE_READ | MR_CONFINE_WRITE);
    }
    if (programs) {
        confinement_add(&paths, "/usr", MR_CONFINE_EXECUTE);
        confinement_add(&paths, "/bin", MR_CONFINE_EXECUTE);
        confinement_add(&paths, "/lib", MR_CONFINE_EXECUTE);
        confinement_add(&paths, "/lib64", MR_CONFINE_EXECUTE);
        confinement_add(&paths, "/tmp", MR_CONFINE_READ | MR_CONFINE_WRITE); /* kinit's new cache */
    }
    mr_confined result = mr_confine_files(paths.items, paths.count);
    for (size_t i = 0; i < paths.count; i++) {
        free((char *)paths.items[i].path);
    }
    free(paths.items);
    return result;
}

static void confine_listeners(void)
{
    (void)mr_confine_listeners();
}

static const char *confinement_word(mr_confined result)
{
    return result == MR_CONFINED               ? "yes"
           : result == MR_CONFINE_NOT_COMPILED ? "not in this build"
                                               : "not possible here";
}

struct mr_confinement mr_confine_process(struct mr_config *config, const char *const *written)
{
    struct mr_confinement done = {.syscalls = "off", .files = "off"};
    bool programs = config->sink_kind == MR_SINK_KAFKA && mr_config_runs_kinit(config);
    if (config->values.hardening_files) {
        done.files = confinement_word(confine_files(config, programs, written));
    }
    if (config->values.hardening_syscalls) {
        mr_confined result =
            mr_confine_syscalls(programs ? MR_CONFINE_PROGRAMS : MR_CONFINE_NO_PROCESSES);
        done.syscalls = result == MR_CONFINED && programs ? "yes, but kinit may be started"
                                                          : confinement_word(result);
        if (config->http.enabled) {
            config->http.listening = confine_listeners;
        } else {
            confine_listeners();
        }
    }
    return done;
}
