#include "ask/pipeline.h"

#include "base/file.h"

struct mr_sha256_short mr_file_digest(const char *path)
{
    size_t len;
    const char *reason;
    MR_FREED char *text = mr_file_read(path, &len, &reason);
    return text == NULL ? (struct mr_sha256_short){""}
                        : mr_sha256_short((mr_slice){(const uint8_t *)text, len});
}

struct mr_pipeline_mark mr_pipeline_mark(const struct mr_pipeline_name *name)
{
    struct mr_pipeline_mark mark;
    snprintf(mark.text, sizeof(mark.text), "%s-%s",
             name->path == NULL ? "" : mr_file_digest(name->path).text, name->stream.text);
    return mark;
}

bool mr_pipeline_is_meant(const struct mr_pipeline_name *name, const char *mark)
{
    if (mark == NULL) {
        return true;
    }
    size_t len = strcspn(mark, "-");
    struct mr_pipeline_mark own = mr_pipeline_mark(name);
    size_t own_len = strcspn(own.text, "-");
    bool same_file = len > 0 && len == own_len && strncmp(mark, own.text, len) == 0;
    return same_file || strcmp(mark + len, own.text + own_len) == 0;
}
