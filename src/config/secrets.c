/* Secrets: read from an environment variable, or from a file that only its owner may read; or printed by a program later. */
#include <fcntl.h>
#include <strings.h>
#include <sys/stat.h>

#include "config/build.h"

enum { SECRET_FILE_MAX = 64 * 1024 };

static char *read_env(struct mr_config *config, const char *what, const char *name, uint32_t line)
{
    char *value = getenv(name);
    if (value == NULL || value[0] == '\0') {
        PROBLEM(config, line,
                "environment variable %s, which should hold the %s, is not set; export %s=…", name,
                what, name);
        return NULL;
    }
    char *copy = MR_STRDUP(value);
    /* Later readers of the process' environment find nothing. */
    explicit_bzero(value, strlen(value));
    return copy;
}

static char *read_open_file(int fd, size_t size)
{
    char *text = MR_ALLOC(size + 1);
    size_t len = 0;
    ssize_t count;
    while (len < size && (count = read(fd, text + len, size - len)) > 0) {
        len += (size_t)count;
    }
    while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r')) {
        len--;
    }
    text[len] = '\0';
    return text;
}

/* A file of root's may be open to one group: systemd's credentials (their ACL for the service's user
 * shows as the group's bits) and Kubernetes' secrets are. libpq has the same rule for keys. */
static bool others_may_read(const struct stat *about)
{
    mode_t wrong = S_IRWXO | (about->st_uid == 0 ? S_IWGRP | S_IXGRP : S_IRWXG);
    return (about->st_mode & wrong) != 0;
}

char *mr_secret_file_read(const char *path, const char *what, bool is_secret,
                          struct mr_error *ret_error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe may have no writer yet */
    struct stat about;
    if (fd < 0 || fstat(fd, &about) != 0) {
        mr_error_set(ret_error, MR_ERR_CONFIG,
                     "file %s, which should hold the %s, can't be read: %s", path, what,
                     strerror(errno));
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
    if (text == NULL || text[0] == '\0') {
        mr_error_set(ret_error, MR_ERR_CONFIG, "file %s, which should hold the %s, %s", path, what,
                     fault == NULL ? "is empty" : fault);
        free(text);
        return NULL;
    }
    return text;
}

static char *read_file(struct mr_config *config, const char *what, const char *path, bool is_secret,
                       uint32_t line)
{
    struct mr_error error;
    char *text = mr_secret_file_read(path, what, is_secret, &error);
    if (text == NULL) {
        PROBLEM(config, line, "%s", error.text);
    }
    return text;
}

static const char *text_of(const struct mr_config *config, uint32_t option)
{
    return option == MR_NO_OPTION ? "" : *(char *const *)mr_value_of(&config->values, option);
}

/* The caller's; NULL as of mr_config_secret. */
static char *read_secret(struct mr_config *config, const char *what, uint32_t env, uint32_t file)
{
    const char *variable = text_of(config, env);
    const char *path = text_of(config, file);
    uint32_t line = env == MR_NO_OPTION ? 0 : config->values.lines[env];
    line = line == 0 && file != MR_NO_OPTION ? config->values.lines[file] : line;
    if (variable[0] == '\0' && path[0] == '\0') {
        return NULL;
    }
    if (variable[0] != '\0' && path[0] != '\0') {
        PROBLEM(config, line, "the %s is given by a variable and by a file; keep one of the two",
                what);
        return NULL;
    }
    return config->problems.without_secrets ? MR_STRDUP("")
           : path[0] == '\0'                ? read_env(config, what, variable, line)
                                            : read_file(config, what, path, true, line);
}

static void forget(void *text)
{
    mr_secret_forget(text);
}

const char *mr_config_secret(struct mr_config *config, const char *what, uint32_t env,
                             uint32_t file)
{
    return mr_config_keep_until(config, read_secret(config, what, env, file), forget);
}

static void free_secret(void *secret)
{
    mr_secret_free(secret);
}

struct mr_secret *mr_config_watched(struct mr_config *config, const char *what, uint32_t env,
                                    uint32_t file)
{
    char *text = read_secret(config, what, env, file);
    if (text == NULL) {
        return NULL;
    }
    struct mr_secret *secret = mr_config_keep_until(config, mr_secret_new(text), free_secret);
    const char *path = text_of(config, file);
    struct mr_secret_files *files = &config->kept.files;
    if (path[0] != '\0') {
        MR_ASSERT(files->count < MR_ARRAY_LEN(files->items));
        files->items[files->count++] = (struct mr_secret_file){secret, path, what};
    }
    return secret;
}

const char *mr_config_public_file(struct mr_config *config, const char *what, uint32_t file)
{
    const char *path = text_of(config, file);
    char *text = config->problems.without_secrets
                     ? MR_STRDUP("")
                     : read_file(config, what, path, false, config->values.lines[file]);
    return mr_config_keep(config, text);
}

/* Named by its path, because a PATH could lead to another program. */
const struct mr_program *mr_config_program(struct mr_config *config, uint32_t option)
{
    const struct mr_strings *words = mr_value_of(&config->values, option);
    const char *path = words->count == 0 ? "" : words->items[0];
    struct stat about;
    if (words->count == 0) {
        return NULL;
    }
    if (path[0] != '/') {
        REFUSE_AT(config, option,
                  ": \"%s\" is not the absolute path of a program; no shell runs it, so each "
                  "argument is an item of the list",
                  path);
        return NULL;
    }
    bool is_here = !config->problems.elsewhere;
    if (is_here &&
        (stat(path, &about) != 0 || !S_ISREG(about.st_mode) || access(path, X_OK) != 0)) {
        REFUSE_AT(config, option, ": %s is not a program that millrace's user may run", path);
        return NULL;
    }
    const char **arguments = KEPT_ARRAY(config, const char *, words->count + 1);
    memcpy(arguments, words->items, words->count * sizeof(*arguments));
    uint8_t number = config->programs.count++;
    MR_ASSERT(number < MR_PROGRAMS_MAX);
    struct mr_program *program = &config->programs.items[number];
    *program = (struct mr_program){mr_option_at(option)->path, arguments, -1, number};
    return program;
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
