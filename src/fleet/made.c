/* The folder of configurations: a file each, which says in its second line what it was made of.
 * Files of others are left alone. */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/file.h"
#include "fleet/fleet_internal.h"

static const char first_line[] =
    "# Made by millrace fleet render; what is changed here is lost with the next rendering.\n";

void mr_fleet_mark(const struct fleet *fleet, const struct fleet_pipeline *pipeline,
                   struct mr_text *to)
{
    mr_text_format(to, "%s# fleet %s: ", first_line, fleet->name);
    if (pipeline->is_found) {
        mr_text_format(to, "server %s, database %s\n", pipeline->server, pipeline->database);
    } else {
        mr_text_string(to, "by hand\n");
    }
}

/* False: the file is not of this fleet. */
static bool read_mark(const struct fleet *fleet, const char *text, struct fleet_pipeline *made)
{
    char name[FLEET_NAME_MAX + 1];
    char server[FLEET_NAME_MAX + 1] = "";
    char database[FLEET_NAME_MAX + 1] = "";
    const char *mark = text + strlen(first_line);
    if (strncmp(text, first_line, strlen(first_line)) != 0 ||
        sscanf(mark, "# fleet %63[^: \n]:", name) != 1 || strcmp(name, fleet->name) != 0) {
        return false;
    }
    made->is_found = sscanf(mark, "# fleet %*[^:]: server %63[^, \n], database %63[^ \n]", server,
                            database) == 2;
    made->server = MR_STRDUP(server);
    made->database = MR_STRDUP(database);
    return true;
}

static char *made_path_of(const char *folder, const char *name)
{
    return mr_formatted("%s/%s.toml", folder, name);
}

/* What is not this fleet's is left out. */
static void take_made(struct fleet *fleet, const char *name, const char *text, size_t len)
{
    struct fleet_pipeline made = {.name = MR_STRDUP(name)};
    mr_text_add(&made.text, text, len);
    if (!read_mark(fleet, made.text.data, &made)) {
        mr_fleet_pipeline_done(&made);
        return;
    }
    if (fleet->asked->load(made.name, text, len, &made.config) != MR_OK) {
        mr_config_free(made.config);
        made.config = NULL;
    }
    mr_fleet_append(&fleet->before, &made);
}

/* Adds the file if it is one of ours. */
static mr_status read_made(struct fleet *fleet, const char *file, struct mr_error *ret_error)
{
    size_t len = strlen(file);
    const char *reason;
    if (len < 6 || strcmp(file + len - 5, ".toml") != 0) {
        return MR_OK;
    }
    MR_FREED char *name = MR_STRNDUP(file, len - 5);
    MR_FREED char *path = made_path_of(fleet->folder, name);
    MR_FREED char *text = mr_file_read(path, &len, &reason);
    if (text == NULL) {
        return mr_fail(ret_error, MR_ERR_USAGE,
                       "%s can't be read, so it can't be told what ran before: %s", path, reason);
    }
    take_made(fleet, name, text, len);
    return MR_OK;
}

mr_status mr_fleet_folder_read(struct fleet *fleet, struct mr_error *ret_error)
{
    DIR *folder = fleet->folder == NULL ? NULL : opendir(fleet->folder);
    if (folder == NULL) {
        return fleet->folder == NULL || errno == ENOENT
                   ? MR_OK
                   : mr_fail(ret_error, MR_ERR_USAGE, "folder %s can't be read: %s", fleet->folder,
                             strerror(errno));
    }
    mr_status status = MR_OK;
    for (const struct dirent *entry; status == MR_OK && (entry = readdir(folder)) != NULL;) {
        status = read_made(fleet, entry->d_name, ret_error);
    }
    closedir(folder);
    return status;
}

void mr_fleet_folder_check(struct fleet *fleet)
{
    for (uint32_t i = 0; fleet->folder != NULL && i < fleet->pipelines.count; i++) {
        const char *name = fleet->pipelines.items[i].name;
        MR_FREED char *path = made_path_of(fleet->folder, name);
        if (mr_fleet_find(&fleet->before, name) == NULL && access(path, F_OK) == 0) {
            FLEET_PROBLEM(fleet, 0,
                          "%s was not made by this fleet; move it away, or give the pipeline "
                          "another name",
                          path);
        }
    }
}

/* In one step, so that nobody reads a half of it. */
static bool made_write_whole(const char *path, const struct mr_text *text)
{
    MR_FREED char *new = mr_formatted("%s.new", path);
    int fd = open(new, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool good = fd >= 0 && write(fd, text->data, text->len) == (ssize_t)text->len;
    return fd >= 0 && close(fd) == 0 && good && rename(new, path) == 0;
}

bool mr_fleet_is_as_before(const struct fleet *fleet, const struct fleet_pipeline *pipeline)
{
    const struct fleet_pipeline *made = mr_fleet_find(&fleet->before, pipeline->name);
    return made != NULL && strcmp(made->text.data, pipeline->text.data) == 0;
}

mr_status mr_fleet_folder_write(const struct fleet *fleet, struct mr_error *ret_error)
{
    uint32_t written = 0, removed = 0;
    mkdir(fleet->folder, 0755);
    for (uint32_t i = 0; i < fleet->pipelines.count; i++) {
        const struct fleet_pipeline *pipeline = &fleet->pipelines.items[i];
        bool is_new = !mr_fleet_is_as_before(fleet, pipeline);
        MR_FREED char *path = made_path_of(fleet->folder, pipeline->name);
        if (is_new && !made_write_whole(path, &pipeline->text)) {
            return mr_fail(ret_error, MR_ERR_USAGE, "%s can't be written: %s", path,
                           strerror(errno));
        }
        written += is_new;
    }
    for (uint32_t i = 0; i < fleet->before.count; i++) {
        const char *name = fleet->before.items[i].name;
        MR_FREED char *path = made_path_of(fleet->folder, name);
        removed += mr_fleet_find(&fleet->pipelines, name) == NULL && unlink(path) == 0;
    }
    fprintf(stderr, "%s: %u written, %u removed, %u as before\n", fleet->folder, written, removed,
            fleet->pipelines.count - written);
    return MR_OK;
}
