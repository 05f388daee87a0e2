#include "event/known_topics.h"

#include <inttypes.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/thread.h"

/* The stored record must fit; a topic takes up to 34 bytes of it. */
enum { STORED_MAX = 32 * 1024, ONE_MAX = 34 };

/* Stands for the cluster where names of topics stand, which are never empty. */
#define CLUSTER_HASH MR_HASH_BEGIN

struct mr_known_topics *mr_known_topics_new(void)
{
    struct mr_known_topics *known = MR_NEW(struct mr_known_topics);
    pthread_mutex_init(&known->lock, NULL);
    return known;
}

void mr_known_topics_free(struct mr_known_topics *known)
{
    if (known != NULL) {
        free(known->items);
        mr_index_done(&known->by_hash);
        free(known->names);
        free(known->text);
        free(known->again);
        pthread_mutex_destroy(&known->lock);
        free(known);
    }
}

static struct mr_known_topic *known_find(const struct mr_known_topics *known, uint64_t hash)
{
    uint32_t number;
    MR_INDEX_FIND(number, &known->by_hash, hash, known->items[number].hash == hash);
    return number == MR_INDEX_NONE ? NULL : &known->items[number];
}

static struct mr_known_topic *known_find_or_make(struct mr_known_topics *known, uint64_t hash)
{
    struct mr_known_topic *found = known_find(known, hash);
    if (found != NULL) {
        return found;
    }
    MR_GROW(known->items, known->capacity, known->by_hash.count + 1);
    uint32_t number = mr_index_add(&known->by_hash, hash);
    known->items[number] = (struct mr_known_topic){.hash = hash};
    return &known->items[number];
}

static uint64_t known_hash(const char *name)
{
    return mr_hash_add(MR_HASH_BEGIN, name, strlen(name));
}

static void known_changed(struct mr_known_topics *known)
{
    known->owes = true;
    free(known->text);
    known->text = NULL;
}

/* "\"public\".\"orders\""; NULL: it is no table's alone. */
static const char *known_table(const struct mr_topic *topic)
{
    return topic->table != NULL && topic->table[0] == '"' ? topic->table : NULL;
}

static void tell_again(struct mr_known_topics *known, const struct mr_topic *topic)
{
    pthread_mutex_lock(&known->lock);
    uint32_t i = 0;
    while (i < known->again_count && known->again[i].topic != topic) {
        i++;
    }
    if (i == known->again_count) {
        MR_GROW(known->again, known->again_capacity, i + 1);
        known->again_count++;
    }
    known->again[i] = (struct mr_again){.topic = topic, .at_ns = mr_monotonic_ns()};
    pthread_mutex_unlock(&known->lock);
    const char *table = known_table(topic);
    mr_log(MR_LOG_ERROR, "topic_made_again",
           "the topic was deleted and made again: what had been sent to it is gone, and only what "
           "changes from now on is in it; millrace snapshot TABLE sends a table's rows",
           MR_LOG_STR("topic", topic->name), MR_LOG_STR("table", table == NULL ? "" : table));
}

void mr_known_topics_add(struct mr_known_topics *known, const struct mr_topic *topic)
{
    uint64_t hash = known_hash(topic->name);
    bool is_new = known_find(known, hash) == NULL;
    struct mr_known_topic *one = known_find_or_make(known, hash);
    one->topic = topic;
    one->gone = false;
    one->due = known->wants = true;
    if (is_new) {
        known_changed(known);
    }
}

bool mr_known_topics_miss(struct mr_known_topics *known, const struct mr_topic *topic)
{
    struct mr_known_topic *one = known_find(known, known_hash(topic->name));
    if (one == NULL || one->gone) {
        return false;
    }
    one->gone = true;
    one->before = one->id != 0 ? one->id : one->before;
    one->id = 0;
    known_changed(known);
    tell_again(known, topic);
    return true;
}

const char **mr_known_topics_names(struct mr_known_topics *known, bool all, uint32_t *ret_count)
{
    uint32_t count = 0;
    MR_GROW(known->names, known->name_capacity, known->by_hash.count + 1);
    for (uint32_t i = 0; i < known->by_hash.count; i++) {
        const struct mr_known_topic *one = &known->items[i];
        if (one->topic != NULL && (all || one->due)) {
            known->names[count++] = one->topic->name;
        }
    }
    known->wants = false;
    *ret_count = count;
    return known->names;
}

void mr_known_topics_cluster(struct mr_known_topics *known, const char *cluster)
{
    uint64_t id = known_hash(cluster);
    if (id == known->cluster) {
        return;
    }
    if (known->cluster != 0) {
        mr_log(MR_LOG_WARN, "kafka_cluster_changed",
               "this is another Kafka cluster than the one that records were sent to before: "
               "whether its topics have them only millrace verify can tell",
               MR_LOG_STR("cluster", cluster));
        for (uint32_t i = 0; i < known->by_hash.count; i++) {
            known->items[i].id = known->items[i].before = 0;
        }
    }
    known->cluster = id;
    known_changed(known);
}

bool mr_known_topics_compare(struct mr_known_topics *known, const char *name, uint64_t id)
{
    struct mr_known_topic *one = known_find(known, known_hash(name));
    if (one == NULL || one->topic == NULL) {
        return false;
    }
    one->due = false;
    if (id == 0 || id == one->id || id == one->before) {
        return false;
    }
    bool is_another = one->id != 0;
    one->before = is_another ? one->id : one->before;
    one->id = id;
    known_changed(known);
    if (is_another) {
        tell_again(known, one->topic);
    }
    return is_another;
}

static void known_add_pair(struct mr_text *text, uint64_t hash, uint64_t id)
{
    mr_text_format(text, "%s%" PRIx64 ".%" PRIx64, text->len == 1 ? "" : " ", hash, id);
}

/* Those of this process, or the others, after them. */
static void known_add_text(const struct mr_known_topics *known, bool own, struct mr_text *text)
{
    for (uint32_t i = 0; i < known->by_hash.count && text->len + ONE_MAX < STORED_MAX; i++) {
        const struct mr_known_topic *one = &known->items[i];
        if ((one->topic != NULL) == own) {
            known_add_pair(text, one->hash, one->id);
        }
    }
}

char *mr_known_topics_format(struct mr_known_topics *known)
{
    known->owes = false;
    if (known->by_hash.count == 0) {
        return NULL;
    }
    if (known->text == NULL) {
        struct mr_text text = {0};
        mr_text_string(&text, "\"");
        if (known->cluster != 0) {
            known_add_pair(&text, CLUSTER_HASH, known->cluster);
        }
        known_add_text(known, true, &text);
        known_add_text(known, false, &text);
        mr_text_string(&text, "\"");
        known->text = text.data;
    }
    return MR_STRDUP(known->text);
}

/* What another instance has stored counts, unless something here is not stored yet. */
static void known_take_one(struct mr_known_topics *known, uint64_t hash, uint64_t id)
{
    if (hash == CLUSTER_HASH) {
        known->cluster = known->cluster == 0 ? id : known->cluster;
        return;
    }
    const struct mr_known_topic *found = known_find(known, hash);
    if (found != NULL && (known->owes || id == 0 || id == found->before)) {
        return;
    }
    known_find_or_make(known, hash)->id = id;
    free(known->text);
    known->text = NULL;
}

void mr_known_topics_take(struct mr_known_topics *known, const char *json)
{
    const char *at = json;
    while (*at == '"' || *at == ' ') {
        uint64_t hash, id;
        int used = 0;
        if (sscanf(at + 1, "%16" SCNx64 ".%16" SCNx64 "%n", &hash, &id, &used) != 2) {
            return;
        }
        known_take_one(known, hash, id);
        at += 1 + used;
    }
}

void mr_known_topics_copied(struct mr_known_topics *known, const char *schema, const char *table,
                            int64_t begun_ns)
{
    if (known == NULL) {
        return;
    }
    char quoted[2 * MR_IDENTIFIER_MAX + 8];
    snprintf(quoted, sizeof(quoted), "\"%s\".\"%s\"", schema, table);
    MR_HOLD(&known->lock);
    for (uint32_t i = 0; i < known->again_count;) {
        const struct mr_again *one = &known->again[i];
        const char *its = known_table(one->topic);
        if (its != NULL && strcmp(its, quoted) == 0 && begun_ns > one->at_ns) {
            known->again[i] = known->again[--known->again_count];
        } else {
            i++;
        }
    }
}

struct mr_again_view mr_known_topics_view(struct mr_known_topics *known)
{
    struct mr_again_view view = {0};
    if (known == NULL) {
        return view;
    }
    MR_HOLD(&known->lock);
    view.count = known->again_count;
    if (view.count > 0) {
        char others[48] = "";
        if (view.count > 1) {
            snprintf(others, sizeof(others), ", and %u more", view.count - 1);
        }
        snprintf(view.text, sizeof(view.text),
                 "Kafka topic \"%.249s\" was deleted and made again%s: what was in it is gone; "
                 "millrace snapshot TABLE sends the rows (millrace help MillraceTopicMadeAgain)",
                 known->again[0].topic->name, others);
    }
    return view;
}
