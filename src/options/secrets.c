/* Secrets: read from an environment variable, or from a file that only its owner may read. */
#include "options/secrets.h"

#include <fcntl.h>
#include <strings.h>
#include <sys/stat.h>

enum { SECRET_FILE_MAX = 64 * 1024 };

#define PROBLEM(problems, line, ...) mr_problem_add((problems), true, (line), __VA_ARGS__)

/* A file ends with a line's end, and so does a variable that was made from one. */
static void trim_end(char *text)
{
    size_t len = strlen(text);
    while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r')) {
        text[--len] = '\0';
    }
}

static char *read_env(struct mr_problems *problems, const char *what, const char *name,
                      uint32_t line)
{
    char *value = getenv(name);
    if (value == NULL || value[0] == '\0') {
        PROBLEM(problems, line,
                "environment variable %s, which should hold the %s, is not set; export %s=…", name,
                what, name);
        return NULL;
    }
    char *copy = MR_STRDUP(value);
    trim_end(copy);
    return copy;
}

/* NULL: it has a zero byte, at which a password would end. */
static char *read_open_file(int fd, size_t size)
{
    char *text = MR_ALLOC(size + 1);
    size_t len = 0;
    ssize_t count;
    while (len < size && (count = read(fd, text + len, size - len)) > 0) {
        len += (size_t)count;
    }
    text[len] = '\0';
    if (strlen(text) < len) {
        explicit_bzero(text, len);
        free(text);
        return NULL;
    }
    trim_end(text);
    return text;
}

/* A file of root's may be open to one group: systemd's credentials (their ACL for the service's
 * user shows as the group's bits) and Kubernetes' secrets are. libpq has the same rule for keys. */
static bool others_may_read(const struct stat *about)
{
    mode_t wrong = S_IRWXO | (about->st_uid == 0 ? S_IWGRP | S_IXGRP : S_IRWXG);
    return (about->st_mode & wrong) != 0;
}

#define CREDENTIALS "/run/credentials/"

/* Of a unit's credential whose unit does not run (systemd.exec(5), "CREDENTIALS"): what gives a
 * command the same one; by the units of the package, docs/deploy. */
static void credential_hint(const char *path, char *ret, size_t size)
{
    const char *unit = path + strlen(CREDENTIALS);
    const char *name = strrchr(path, '/') + 1;
    int unit_len = (int)strcspn(unit, "/");
    char source[256];
    const char *at = memchr(unit, '@', (size_t)unit_len);
    if (at != NULL) {
        int len = unit_len - (int)(at + 1 - unit) - (int)strlen(".service");
        snprintf(source, sizeof(source),
                 "secrets:/etc/millrace/secrets/%.*s -p RuntimeDirectory=millrace/%.*s", len,
                 at + 1, len, at + 1);
    } else {
        snprintf(source, sizeof(source), "%s:/etc/millrace/%s.password", name, name);
    }
    snprintf(
        ret, size,
        "; systemd has it there only while %.*s runs: put before the command sudo systemd-run -tP "
        "--wait --collect -p DynamicUser=yes -p LoadCredential=%s",
        unit_len, unit, source);
}

static bool is_credential(const char *path)
{
    static const char suffix[] = ".service/";
    const char *end = strstr(path, suffix);
    return strncmp(path, CREDENTIALS, strlen(CREDENTIALS)) == 0 && end != NULL &&
           strchr(end + strlen(suffix), '/') == NULL;
}

/* One that systemd-run has given the command is in a folder of its own unit. The caller's. */
static char *credential(const char *path)
{
    const char *folder = getenv("CREDENTIALS_DIRECTORY");
    return folder != NULL && is_credential(path) && access(path, F_OK) != 0
               ? mr_formatted("%s%s", folder, strrchr(path, '/'))
               : MR_STRDUP(path);
}

char *mr_secret_file_read(const char *path, const char *what, bool is_secret,
                          struct mr_error *ret_error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe may have no writer yet */
    struct stat about;
    if (fd < 0 || fstat(fd, &about) != 0) {
        char hint[512] = "";
        int why = errno;
        if (fd < 0 && is_credential(path)) {
            credential_hint(path, hint, sizeof(hint));
        }
        mr_error_set(ret_error, MR_ERR_CONFIG,
                     "file %s, which should hold the %s, can't be read: %s%s", path, what,
                     strerror(why), hint);
        if (fd >= 0) {
            close(fd);
        }
        return NULL;
    }
    const char *fault = !S_ISREG(about.st_mode) ? "is not a regular file"
                        : is_secret && others_may_read(&about)
                            ? "may be read by others; run chmod 600 on it"
                        : about.st_size > SECRET_FILE_MAX ? "is too large to be that"
                                                          : NULL;
    char *text = fault == NULL ? read_open_file(fd, (size_t)about.st_size) : NULL;
    close(fd);
    fault = fault == NULL && text == NULL ? "has a zero byte in it" : fault;
    if (text == NULL || text[0] == '\0') {
        mr_error_set(ret_error, MR_ERR_CONFIG, "file %s, which should hold the %s, %s", path, what,
                     fault == NULL ? "is empty" : fault);
        free(text);
        return NULL;
    }
    return text;
}

static char *secrets_read_file(struct mr_problems *problems, const char *what, const char *path,
                               bool is_secret, uint32_t line)
{
    struct mr_error error;
    char *text = mr_secret_file_read(path, what, is_secret, &error);
    if (text == NULL) {
        PROBLEM(problems, line, "%s", error.text);
    }
    return text;
}

static const char *secrets_text_of(const struct mr_config_values *values, uint32_t option)
{
    const struct mr_strings *words = mr_value_of(values, option);
    return !mr_kind_is_list(mr_option_at(option)->kind)
               ? *(char *const *)mr_value_of(values, option)
           : words->count == 0 ? ""
                               : words->items[0];
}

/* The file that holds the secret; NULL: a variable does, or a program prints it, or it is not
 * set. The caller's. */
static char *secrets_path(const struct mr_config_values *values, uint32_t option)
{
    const char *text = secrets_text_of(values, option);
    const char *path = mr_text_after(text, "file:");
    bool is_path = mr_option_at(option)->kind == MR_KIND_STRING && text[0] != '\0' &&
                   mr_text_after(text, "env:") == NULL;
    return path != NULL ? credential(path) : is_path ? credential(text) : NULL;
}

char *mr_secret_read(const struct mr_config_values *values, struct mr_problems *problems,
                     const char *what, uint32_t option)
{
    const char *variable = mr_text_after(secrets_text_of(values, option), "env:");
    MR_FREED char *path = secrets_path(values, option);
    uint32_t line = values->lines[option];
    if (variable == NULL && path == NULL) {
        return NULL;
    }
    return problems->without_secrets ? MR_STRDUP("")
           : path == NULL            ? read_env(problems, what, variable, line)
                                     : secrets_read_file(problems, what, path, true, line);
}

void mr_secrets_empty_variables(const struct mr_config_values *values)
{
    for (uint32_t i = 0; i < MR_OPTION_COUNT; i++) {
        enum mr_option_kind kind = mr_option_at(i)->kind;
        bool may_name = kind == MR_KIND_STRING || kind == MR_KIND_SECRET || kind == MR_KIND_LOGIN;
        const char *name = may_name ? mr_text_after(secrets_text_of(values, i), "env:") : NULL;
        char *value = name == NULL ? NULL : getenv(name);
        if (value != NULL) {
            explicit_bzero(value, strlen(value));
        }
    }
}

char *mr_secret_public_read(const struct mr_config_values *values, struct mr_problems *problems,
                            const char *what, uint32_t file)
{
    return problems->without_secrets
               ? MR_STRDUP("")
               : secrets_read_file(problems, what, secrets_text_of(values, file), false,
                                   values->lines[file]);
}

static void tell_fault(struct mr_secret_file *file, const char *fault)
{
    if (!atomic_exchange(&file->is_faulty, true)) {
        mr_log(
            MR_LOG_WARN, "secret_unreadable", fault,
            MR_LOG_STR("remedy", "put the secret there again; until then the one before is used"));
    }
}

/* mr_secret_look_fn. Half of a new secret that is being written is refused by the server, and the
 * next connection reads it again. */
static bool look_at_file(void *context)
{
    struct mr_secret_file *file = context;
    struct mr_error error;
    char *text = mr_secret_file_read(file->path, file->what, true, &error);
    if (text == NULL) {
        tell_fault(file, error.text);
        return false;
    }
    atomic_store(&file->is_faulty, false);
    bool differs = mr_secret_change(file->secret, text);
    if (differs) {
        mr_log(MR_LOG_INFO, "secret_changed",
               "a file with a secret has a new one, which is used from now on",
               MR_LOG_STR("secret", file->what), MR_LOG_STR("file", file->path));
    }
    mr_secret_forget(text);
    return differs;
}

struct mr_secret *mr_secret_files_add(struct mr_secret_files *files,
                                      const struct mr_config_values *values,
                                      struct mr_problems *problems, const char *what,
                                      uint32_t option)
{
    char *text = mr_secret_read(values, problems, what, option);
    if (text == NULL) {
        return NULL;
    }
    MR_ASSERT(files->count < MR_ARRAY_LEN(files->items));
    struct mr_secret_file *kept = &files->items[files->count++];
    *kept = (struct mr_secret_file){.secret = mr_secret_new(text), .what = what};
    kept->path = problems->without_secrets ? NULL : secrets_path(values, option);
    if (kept->path != NULL) {
        mr_secret_keep(kept->secret, look_at_file, kept);
    }
    return kept->secret;
}

void mr_secret_files_done(struct mr_secret_files *files)
{
    for (uint32_t i = 0; i < files->count; i++) {
        mr_secret_free(files->items[i].secret);
        free(files->items[i].path);
    }
    files->count = 0;
}

bool mr_secret_in_conninfo(const char *conninfo)
{
    if (strcasestr(conninfo, "password") != NULL) {
        return true;
    }
    const char *scheme = strstr(conninfo, "://");
    if (scheme == NULL) {
        return false;
    }
    const char *at = strchr(scheme, '@');
    const char *colon = strchr(scheme + 3, ':');
    return at != NULL && colon != NULL && colon < at;
}

bool mr_secret_property(const char *name)
{
    return strstr(name, "password") != NULL || strcmp(name, "ssl.key.pem") == 0 ||
           strstr(name, "client.secret") != NULL || strcmp(name, "sasl.oauthbearer.config") == 0;
}
