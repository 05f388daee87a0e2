/* The folder of configurations: a file each, which says in its second line what it was made of. Files of others are left alone. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

static bool read_mark(const struct fleet *fleet, struct fleet_made *made)
{
    char name[FLEET_NAME_MAX + 1];
    const char *mark = made->text + strlen(first_line);
    if (strncmp(made->text, first_line, strlen(first_line)) != 0 ||
        sscanf(mark, "# fleet %63[^: \n]:", name) != 1 || strcmp(name, fleet->name) != 0) {
        return false;
    }
    made->is_found = sscanf(mark, "# fleet %*[^:]: server %63[^, \n], database %63[^ \n]",
                            made->server, made->database) == 2;
    return true;
}

static char *path_of(const char *folder, const char *name)
{
    struct mr_text path = {0};
    mr_text_format(&path, "%s/%s.toml", folder, name);
    return path.data;
}

static void made_done(struct fleet_made *made)
{
    free(made->name);
    free(made->path);
    free(made->text);
}

/* False: it is not one of ours. */
static bool read_made(const struct fleet *fleet, const char *folder, const char *file,
                      struct fleet_made *made)
{
    size_t len = strlen(file);
    const char *reason;
    if (len < 6 || strcmp(file + len - 5, ".toml") != 0) {
        return false;
    }
    made->name = MR_STRNDUP(file, len - 5);
    made->path = path_of(folder, made->name);
    char *text = mr_file_read(made->path, &len, &reason);
    made->text = MR_STRNDUP(text == NULL ? "" : text, text == NULL ? 0 : len);
    free(text);
    bool ours = read_mark(fleet, made);
    if (!ours) {
        made_done(made);
    }
    return ours;
}

mr_status mr_fleet_folder_read(const struct fleet *fleet, const char *path,
                               struct fleet_folder *ret, struct mr_error *ret_error)
{
    DIR *folder = path == NULL ? NULL : opendir(path);
    if (folder == NULL) {
        return path == NULL || errno == ENOENT
                   ? MR_OK
                   : mr_fail(ret_error, MR_ERR_USAGE, "folder %s can't be read: %s", path,
                             strerror(errno));
    }
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        struct fleet_made made = {0};
        if (read_made(fleet, path, entry->d_name, &made)) {
            MR_GROW(ret->items, ret->room, ret->count + 1);
            ret->items[ret->count++] = made;
        }
    }
    closedir(folder);
    return MR_OK;
}

void mr_fleet_folder_done(struct fleet_folder *folder)
{
    for (uint32_t i = 0; i < folder->count; i++) {
        made_done(&folder->items[i]);
    }
    free(folder->items);
}

const struct fleet_made *mr_fleet_made(const struct fleet_folder *folder, const char *name)
{
    for (uint32_t i = 0; i < folder->count; i++) {
        if (strcmp(folder->items[i].name, name) == 0) {
            return &folder->items[i];
        }
    }
    return NULL;
}

/* In one step, so that nobody reads a half of it. */
static bool write_file(const char *path, const struct mr_text *text)
{
    struct mr_text new = {0};
    mr_text_format(&new, "%s.new", path);
    FILE *to = fopen(new.data, "we");
    bool good = to != NULL && fwrite(text->data, 1, text->len, to) == text->len;
    good = to != NULL && fclose(to) == 0 && good && rename(new.data, path) == 0;
    mr_text_done(&new);
    return good;
}

/* Whether the file is another one now. One of that name which this fleet has not made is somebody's. */
static mr_status write_one(const struct fleet_pipeline *pipeline, const struct fleet_made *made,
                           const char *path, bool *ret_written, struct mr_error *ret_error)
{
    *ret_written = made == NULL || strcmp(made->text, pipeline->text.data) != 0;
    if (made == NULL && access(path, F_OK) == 0) {
        return mr_fail(ret_error, MR_ERR_CONFIG,
                       "%s was not made by this fleet; move it away, or give the pipeline another "
                       "name",
                       path);
    }
    return !*ret_written || write_file(path, &pipeline->text)
               ? MR_OK
               : mr_fail(ret_error, MR_ERR_USAGE, "%s can't be written: %s", path, strerror(errno));
}

mr_status mr_fleet_folder_write(const struct fleet *fleet, const struct fleet_folder *before,
                                const char *path, struct mr_error *ret_error)
{
    uint32_t written = 0, removed = 0;
    mkdir(path, 0755);
    for (uint32_t i = 0; i < fleet->pipeline_count; i++) {
        const struct fleet_pipeline *pipeline = &fleet->pipelines[i];
        char *file = path_of(path, pipeline->name);
        bool is_new;
        mr_status status =
            write_one(pipeline, mr_fleet_made(before, pipeline->name), file, &is_new, ret_error);
        free(file);
        MR_TRY(status);
        written += is_new;
    }
    for (uint32_t i = 0; i < before->count; i++) {
        const struct fleet_made *made = &before->items[i];
        removed += mr_fleet_find(fleet, made->name, NULL, NULL) == NULL && unlink(made->path) == 0;
    }
    fprintf(stderr, "%s: %u written, %u removed, %u as before\n", path, written, removed,
            fleet->pipeline_count - written);
    return MR_OK;
}
