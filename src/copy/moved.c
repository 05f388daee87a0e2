#include "copy/moved.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

enum {
    NAMES_MAX = 10,         /* in a line of the log */
    BOUNDS_MAX = 16 * 1024, /* all conditions stand in one record */
};

/* What one look has found of a kind. */
struct found {
    uint32_t count, last_root;
    struct mr_text partitions, roots; /* names, the first ten */
};

struct look {
    struct mr_moved *moved;
    struct mr_pg_conn *conn;
    struct mr_leaves now;
    struct found found[MR_MOVED_COUNT];
    struct mr_moved_leaves streamed;
    struct mr_error *ret_error;
};

static void add_name(struct mr_text *names, const char *schema, const char *dot, const char *table)
{
    mr_text_format(names, "%s%s%s%s", names->len == 0 ? "" : ", ", schema, dot, table);
}

static void add(struct look *look, enum mr_moved_how how, const struct mr_leaf *leaf,
                const struct mr_root *root)
{
    struct found *found = &look->found[how];
    if (found->count++ < NAMES_MAX) {
        add_name(&found->partitions, leaf->name, "", "");
        if (found->last_root != root->oid) {
            add_name(&found->roots, root->schema, ".", root->table);
        }
        found->last_root = root->oid;
    }
}

/* What there is no event for. */
static const struct {
    const char *text, *remedy;
    enum mr_moved_policy mends_at; /* the topic follows from this policy on */
} kinds[] = {
    [MR_MOVED_ATTACHED] = {"partitions were attached: no event tells of the rows they had",
                           "set partitions.moved = \"copy\" before the next; have these tables "
                           "copied: millrace snapshot TABLE",
                           MR_MOVED_COPY},
    [MR_MOVED_DETACHED] = {"partitions were detached: no event tells that their rows are gone",
                           "where the topic is to lose these rows, too: millrace verify --repair; "
                           "partitions.moved = \"follow\" before the next",
                           MR_MOVED_FOLLOW},
    [MR_MOVED_DROPPED] = {"partitions were dropped: no event tells that their rows are gone",
                          "where the topic is to lose these rows, too: millrace verify --repair",
                          MR_MOVED_POLICIES},
    [MR_MOVED_TRUNCATED] = {"partitions were truncated: no event tells that their rows are gone",
                            "where the topic is to lose these rows, too: millrace verify --repair",
                            MR_MOVED_POLICIES},
};

static void tell(struct look *look, enum mr_moved_how how)
{
    const struct mr_moved *moved = look->moved;
    const struct found *found = &look->found[how];
    bool is_mended = moved->policy >= kinds[how].mends_at;
    if (found->count > 0) {
        mr_copies_count_moved(moved->copies, how, found->count);
        mr_log(is_mended ? MR_LOG_INFO : MR_LOG_WARN, "partition_moved", kinds[how].text,
               MR_LOG_STR("how", mr_moved_name(how)),
               MR_LOG_STR("partitions", found->partitions.data),
               MR_LOG_STR("tables", found->roots.data), MR_LOG_INT("count", found->count),
               MR_LOG_STR("remedy", is_mended ? "none: the topic follows" : kinds[how].remedy));
    }
}

/* The topic loses what the root has lost. */
static void have_deleted(const struct look *look, const struct mr_leaf *leaf,
                         const struct mr_root *root)
{
    struct mr_copy_wish wish = {
        .schema = root->schema, .table = root->table, .detached = leaf->oid};
    uint64_t id;
    struct mr_error error;
    if (mr_copies_ask(look->moved->copies, &wish, &id, &error) != MR_OK) {
        mr_log(MR_LOG_WARN, "partition_left", error.text, MR_LOG_STR("partition", leaf->name));
    }
}

/* One that is no longer where it was, while its root is. */
static mr_status look_at_gone(struct look *look, const struct mr_leaf *leaf)
{
    const struct mr_leaf *now = mr_leaves_find(&look->now, leaf->oid);
    const struct mr_root *root = mr_leaves_root(&look->now, leaf->root);
    bool is_there = now != NULL;
    if (root == NULL || (now != NULL && now->root == leaf->root)) {
        return MR_OK;
    }
    if (now == NULL) {
        int64_t there;
        MR_TRY(mr_pg_ask_number(look->conn, "a table", 'b', &there, look->ret_error,
                                "SELECT EXISTS (SELECT FROM pg_class WHERE oid = %u)", leaf->oid));
        is_there = there != 0;
    }
    add(look, is_there ? MR_MOVED_DETACHED : MR_MOVED_DROPPED, leaf, root);
    if (is_there && look->moved->policy == MR_MOVED_FOLLOW) {
        have_deleted(look, leaf, root);
    }
    return MR_OK;
}

static struct mr_streamed_table *add_streamed(struct look *look, uint32_t oid,
                                              const struct mr_root *root)
{
    struct mr_streamed_table *one = &look->streamed.tables[look->streamed.count++];
    *one = (struct mr_streamed_table){
        .oid = oid, .schema = root->schema, .table = root->table, .root = root->oid};
    return one;
}

/* What is known in memory alone tells what to log; what is stored, what to copy. */
static mr_status look_at_leaf(struct look *look, const struct mr_leaf *leaf)
{
    struct mr_moved *moved = look->moved;
    const struct mr_root *root = mr_leaves_root(&look->now, leaf->root);
    const struct mr_leaf *before = mr_leaves_find(&moved->before, leaf->oid);
    struct mr_streamed_table *streamed = add_streamed(look, leaf->oid, root);
    bool is_copied = moved->policy >= MR_MOVED_COPY && mr_copies_lacks(moved->copies, streamed);
    bool was_here = before != NULL && before->root == leaf->root;
    bool is_new = moved->has_looked ? !was_here && mr_leaves_root(&moved->before, root->oid) != NULL
                                    : is_copied;
    if (was_here && before->filenode != leaf->filenode && !leaf->is_counted) {
        add(look, MR_MOVED_TRUNCATED, leaf, root);
    }
    if (!is_new && !is_copied) {
        return MR_OK;
    }
    bool was_attached;
    char *bounds = NULL;
    MR_TRY(mr_pg_leaf_ask(look->conn, leaf->oid, &was_attached, is_copied ? &bounds : NULL,
                          look->ret_error));
    if (is_new && was_attached) {
        add(look, MR_MOVED_ATTACHED, leaf, root);
    }
    if (bounds != NULL) {
        bool fits = strlen(bounds) <= BOUNDS_MAX; /* else all rows of the root */
        look->streamed.bounds[look->streamed.bounds_count++] = bounds;
        streamed->where = fits ? bounds : "";
    }
    return MR_OK;
}

static mr_status compare(struct look *look)
{
    struct mr_moved *moved = look->moved;
    for (uint32_t i = 0; i < look->now.root_count; i++) {
        add_streamed(look, look->now.roots[i].oid, &look->now.roots[i]);
    }
    for (uint32_t i = 0; i < look->now.leaf_count; i++) {
        MR_TRY(look_at_leaf(look, &look->now.leaves[i]));
    }
    for (uint32_t i = 0; i < moved->before.leaf_count; i++) {
        MR_TRY(look_at_gone(look, &moved->before.leaves[i]));
    }
    return MR_OK;
}

mr_status mr_moved_look(struct mr_moved *moved, struct mr_pg_conn *conn,
                        const struct mr_pg_source_options *options, struct mr_moved_leaves *ret,
                        struct mr_error *ret_error)
{
    struct look look = {.moved = moved, .conn = conn, .ret_error = ret_error};
    MR_TRY(mr_pg_leaves_read(conn, options, &look.now, ret_error));
    uint32_t most = look.now.root_count + look.now.leaf_count;
    look.streamed.tables = MR_NEW_ARRAY(struct mr_streamed_table, most + 1);
    look.streamed.bounds = MR_NEW_ARRAY(char *, most + 1);
    mr_status status = compare(&look);
    for (uint32_t i = 0; i < MR_MOVED_COUNT; i++) {
        if (status == MR_OK) {
            tell(&look, (enum mr_moved_how)i);
        }
        mr_text_done(&look.found[i].partitions);
        mr_text_done(&look.found[i].roots);
    }
    mr_leaves_done(status == MR_OK ? &moved->before : &look.now);
    if (status != MR_OK) { /* the next look finds it again */
        mr_moved_leaves_done(&look.streamed);
        return status;
    }
    moved->before = look.now;
    moved->has_looked = true;
    *ret = look.streamed;
    return MR_OK;
}

void mr_moved_leaves_done(struct mr_moved_leaves *leaves)
{
    for (uint32_t i = 0; i < leaves->bounds_count; i++) {
        free(leaves->bounds[i]);
    }
    free(leaves->bounds);
    free(leaves->tables);
    *leaves = (struct mr_moved_leaves){0};
}

void mr_moved_done(struct mr_moved *moved)
{
    mr_leaves_done(&moved->before);
}
