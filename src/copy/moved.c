#include "copy/moved.h"

enum { NAMES_MAX = 10 }; /* in a line of the log */

struct look {
    struct mr_moved *moved;
    struct mr_pg_conn *conn;
    struct mr_leaves now;
    uint32_t *kept; /* of each root: partitions that were here and have the same file */
    struct mr_moved_found found;
    struct mr_error *ret_error;
};

static void moved_add_name(struct mr_text *names, const char *schema, const char *dot,
                           const char *table)
{
    mr_text_format(names, "%s%s%s%s", names->len == 0 ? "" : ", ", schema, dot, table);
}

static void moved_add(struct look *look, enum mr_moved_how how, const struct mr_leaf *leaf,
                      const struct mr_root *root)
{
    struct mr_moved_kind *kind = &look->found.kinds[how];
    if (kind->count++ < NAMES_MAX) {
        moved_add_name(&kind->partitions, leaf->name, "", "");
        if (kind->last_root != root->oid) {
            moved_add_name(&kind->roots, root->schema, ".", root->table);
        }
        kind->last_root = root->oid;
    }
}

/* What there is no event for. */
static const char *const texts[] = {
    [MR_MOVED_ATTACHED] = "partitions were attached: no event tells of the rows they had",
    [MR_MOVED_DETACHED] = "partitions were detached: no event tells that their rows are gone",
    [MR_MOVED_DROPPED] = "partitions were dropped: no event tells that their rows are gone",
    [MR_MOVED_TRUNCATED] = "partitions were truncated: no event tells that their rows are gone",
};

/* All that were lacked, and more, were asked for. */
static bool has_asked(const struct mr_moved *moved, const struct mr_moved_found *found)
{
    uint32_t i = 0;
    while (i < found->count && !mr_copies_lacks(moved->copies, &found->tables[i])) {
        i++;
    }
    return i == found->count;
}

static void moved_tell(const struct mr_moved *moved, const struct mr_moved_found *found,
                       enum mr_moved_how how)
{
    const struct mr_moved_kind *kind = &found->kinds[how];
    if (kind->count == 0) {
        return;
    }
    bool is_in = how == MR_MOVED_ATTACHED;
    bool follows = is_in && moved->policy == MR_MOVED_COPY && !found->is_unasked;
    mr_copies_count_moved(moved->copies, how, kind->count);
    mr_log(follows ? MR_LOG_INFO : MR_LOG_WARN, "partition_moved", texts[how],
           MR_LOG_STR("how", mr_moved_name(how)), MR_LOG_STR("partitions", kind->partitions.data),
           MR_LOG_STR("tables", kind->roots.data), MR_LOG_INT("count", kind->count),
           MR_LOG_STR(
               "remedy",
               follows ? (has_asked(moved, found)
                              ? "none: the topic follows"
                              : "none yet: the topic follows once other copies have ended")
               : is_in ? "have these tables copied: millrace snapshot TABLE; partitions.moved "
                         "= \"copy\" does it for the next"
                       : "where the topic is to lose these rows, too: millrace verify --repair"));
}

void mr_moved_tell(const struct mr_moved *moved, const struct mr_moved_found *found)
{
    for (uint32_t i = 0; i < MR_MOVED_COUNT; i++) {
        moved_tell(moved, found, (enum mr_moved_how)i);
    }
}

/* As it was at the last look, if it has hung at its root ever since; NULL: it has not. */
static const struct mr_leaf *former(const struct look *look, const struct mr_leaf *leaf)
{
    const struct mr_leaf *before = mr_leaves_find(&look->moved->before, leaf->oid);
    return before != NULL && before->mark == leaf->mark ? before : NULL;
}

/* One that is no longer where it was, while its root is. */
static mr_status look_at_gone(struct look *look, const struct mr_leaf *leaf)
{
    const struct mr_leaf *now = mr_leaves_find(&look->now, leaf->oid);
    const struct mr_root *root = mr_leaves_root(&look->now, leaf->root);
    bool is_there = now != NULL;
    if (root == NULL || (now != NULL && now->mark == leaf->mark)) {
        return MR_OK;
    }
    if (now == NULL) {
        int64_t there;
        MR_TRY(mr_pg_ask_number(look->conn, "a table", 'b', &there, look->ret_error,
                                "SELECT EXISTS (SELECT FROM pg_class WHERE oid = %u)", leaf->oid));
        is_there = there != 0;
    }
    moved_add(look, is_there ? MR_MOVED_DETACHED : MR_MOVED_DROPPED, leaf, root);
    return MR_OK;
}

static struct mr_streamed_table *add_streamed(struct look *look, uint32_t oid, uint32_t mark,
                                              const struct mr_root *root)
{
    struct mr_streamed_table *one = &look->found.tables[look->found.count++];
    *one = (struct mr_streamed_table){.id = mr_streamed_id(oid, mark),
                                      .schema = root->schema,
                                      .table = root->table,
                                      .root = mr_streamed_id(root->oid, root->mark)};
    return one;
}

/* What is known in memory alone tells what to log; what is stored, what to copy. */
static mr_status look_at_leaf(struct look *look, const struct mr_leaf *leaf)
{
    struct mr_moved *moved = look->moved;
    const struct mr_root *root = mr_leaves_root(&look->now, leaf->root);
    const struct mr_leaf *before = former(look, leaf);
    struct mr_streamed_table *streamed = add_streamed(look, leaf->oid, leaf->mark, root);
    bool is_copied = moved->policy == MR_MOVED_COPY && mr_copies_lacks(moved->copies, streamed);
    bool is_new = moved->has_looked
                      ? before == NULL && mr_leaves_root(&moved->before, root->oid) != NULL
                      : is_copied;
    if (before != NULL && before->has_rows && before->filenode != leaf->filenode &&
        !leaf->has_rows && look->kept[root - look->now.roots] > 0) {
        moved_add(look, MR_MOVED_TRUNCATED, leaf, root);
    }
    if (!is_new && !is_copied) {
        return MR_OK;
    }
    bool was_attached;
    char *bounds = NULL;
    MR_TRY(mr_pg_leaf_ask(look->conn, leaf->oid, &was_attached, is_copied ? &bounds : NULL,
                          look->ret_error));
    if (is_new && was_attached) {
        moved_add(look, MR_MOVED_ATTACHED, leaf, root);
        look->found.is_unasked = look->found.is_unasked || !is_copied;
    }
    if (bounds != NULL) {
        look->found.bounds[look->found.bounds_count++] = bounds;
        streamed->where = bounds;
    }
    return MR_OK;
}

static void count_kept(struct look *look)
{
    look->kept = MR_NEW_ARRAY(uint32_t, look->now.root_count + 1);
    for (uint32_t i = 0; i < look->now.leaf_count; i++) {
        const struct mr_leaf *leaf = &look->now.leaves[i];
        const struct mr_leaf *before = former(look, leaf);
        look->kept[mr_leaves_root(&look->now, leaf->root) - look->now.roots] +=
            before != NULL && before->filenode == leaf->filenode;
    }
}

static mr_status moved_compare(struct look *look)
{
    const struct mr_leaves *before = &look->moved->before;
    count_kept(look);
    for (uint32_t i = 0; i < look->now.root_count; i++) {
        const struct mr_root *root = &look->now.roots[i];
        add_streamed(look, root->oid, root->mark, root);
    }
    for (uint32_t i = 0; i < look->now.leaf_count; i++) {
        MR_TRY(look_at_leaf(look, &look->now.leaves[i]));
    }
    for (uint32_t i = 0; i < before->leaf_count; i++) {
        MR_TRY(look_at_gone(look, &before->leaves[i]));
    }
    return MR_OK;
}

mr_status mr_moved_look(struct mr_moved *moved, struct mr_pg_conn *conn,
                        const struct mr_pg_source_options *options, struct mr_moved_found *ret,
                        struct mr_error *ret_error)
{
    struct look look = {.moved = moved, .conn = conn, .ret_error = ret_error};
    MR_TRY(mr_pg_leaves_read(conn, options, &look.now, ret_error));
    uint32_t most = look.now.root_count + look.now.leaf_count;
    look.found.tables = MR_NEW_ARRAY(struct mr_streamed_table, most + 1);
    look.found.bounds = MR_NEW_ARRAY(char *, most + 1);
    mr_status status = moved_compare(&look);
    free(look.kept);
    mr_leaves_done(status == MR_OK ? &moved->before : &look.now);
    if (status != MR_OK) { /* the next look finds it again */
        mr_moved_found_done(&look.found);
        return status;
    }
    moved->before = look.now;
    moved->has_looked = true;
    *ret = look.found;
    return MR_OK;
}

void mr_moved_found_done(struct mr_moved_found *found)
{
    for (uint32_t i = 0; i < MR_MOVED_COUNT; i++) {
        mr_text_done(&found->kinds[i].partitions);
        mr_text_done(&found->kinds[i].roots);
    }
    mr_free_all(found->bounds, found->bounds_count);
    free(found->tables);
    *found = (struct mr_moved_found){0};
}

void mr_moved_done(struct mr_moved *moved)
{
    mr_leaves_done(&moved->before);
}
