#include "postgres/catalog/pg_types.h"

#include "postgres/catalog/pg_sql.h"

enum {
    DOMAINS_MAX = 64,     /* a domain over a domain over …: more than anybody has */
    ASKED_MAX = 1000,     /* types that one type comes from */
    READ_MAX = 50 * 1000, /* at the start; others are asked for */
    TYPES_MAX = 200 * 1000,
};

struct mr_pg_type {
    uint32_t oid;
    uint32_t base_oid;    /* of a domain, else 0 */
    int32_t modifier;     /* that a domain puts on its base */
    uint32_t element_oid; /* of an array, else 0 */
    enum mr_type_kind kind;
    bool is_gone; /* the catalog did not have it when it was asked for */
};

enum type_column { TYPE_OID, TYPE_BASE, TYPE_MODIFIER, TYPE_ELEMENT, TYPE_LETTER, TYPE_NAME };

/* What a type has come from: a column, the base of a domain, the element of an array. */
static void pg_types_add_query(struct mr_text *sql, uint32_t oid)
{
    mr_text_string(sql, "WITH RECURSIVE used(oid) AS (");
    if (oid != 0) {
        mr_text_format(sql, "SELECT %u::oid", oid);
    } else {
        mr_text_format(sql,
                       "SELECT atttypid FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped"
                       " AND atttypid >= %u",
                       MR_FIRST_USER_OID);
    }
    mr_text_format(
        sql,
        " UNION SELECT m.oid FROM used u JOIN pg_type t ON t.oid = u.oid CROSS JOIN LATERAL"
        " (VALUES (t.typbasetype), (t.typelem)) m(oid) WHERE m.oid >= %u)"
        " SELECT t.oid, t.typbasetype, t.typtypmod, CASE WHEN t.typcategory = 'A' AND t.typlen = -1"
        " THEN t.typelem ELSE 0 END, t.typtype, t.typname FROM used u JOIN pg_type t ON"
        " t.oid = u.oid ORDER BY t.oid LIMIT %u",
        MR_FIRST_USER_OID, (unsigned)(oid == 0 ? READ_MAX : ASKED_MAX + 1));
}

/* Types of extensions are known by their names, wherever they are installed. */
static enum mr_type_kind kind_of(char letter, const char *name)
{
    static const struct {
        const char *name;
        enum mr_type_kind kind;
    } known[] = {
        {"citext", MR_TYPE_TEXT},     {"ltree", MR_TYPE_TEXT},
        {"isbn", MR_TYPE_TEXT},       {"isbn13", MR_TYPE_TEXT},
        {"issn", MR_TYPE_TEXT},       {"issn13", MR_TYPE_TEXT},
        {"ismn", MR_TYPE_TEXT},       {"ismn13", MR_TYPE_TEXT},
        {"ean13", MR_TYPE_TEXT},      {"upc", MR_TYPE_TEXT},
        {"hstore", MR_TYPE_HSTORE},   {"geometry", MR_TYPE_GEOMETRY},
        {"vector", MR_TYPE_VECTOR},   {"geography", MR_TYPE_GEOGRAPHY},
        {"halfvec", MR_TYPE_HALFVEC}, {"sparsevec", MR_TYPE_SPARSEVEC},
    };
    for (size_t i = 0; letter == 'b' && i < MR_ARRAY_LEN(known); i++) {
        if (strcmp(name, known[i].name) == 0) {
            return known[i].kind;
        }
    }
    return letter == 'e' ? MR_TYPE_TEXT : MR_TYPE_OPAQUE;
}

static const struct mr_pg_type *pg_type_of(const struct mr_by_oid *types, uint32_t oid)
{
    return mr_by_oid_find(types, sizeof(struct mr_pg_type), oid);
}

static void pg_types_keep(struct mr_by_oid *types, struct mr_pg_type type)
{
    *(struct mr_pg_type *)mr_by_oid_make(types, sizeof(type), type.oid) = type;
}

static mr_status read_types(struct mr_by_oid *types, struct mr_pg_conn *conn, uint32_t oid,
                            struct mr_error *ret_error)
{
    const struct mr_pg_shape shape = {"the columns' types", "nnSnss", 0,
                                      oid == 0 ? READ_MAX : ASKED_MAX};
    struct mr_text sql = {0};
    pg_types_add_query(&sql, oid);
    const struct mr_pg_result *result;
    MR_TRY(mr_pg_ask(conn, &sql, &shape, &result, ret_error));
    uint32_t last = 0;
    for (uint32_t row = 0; row < mr_pg_result_rows(result); row++) {
        uint32_t known = (uint32_t)mr_pg_result_number(result, row, TYPE_OID);
        if (known < last || types->count == TYPES_MAX) {
            return mr_fail(ret_error, MR_ERR_PROTOCOL,
                           "the server was asked for the columns' types and answers in another "
                           "order, or with more types than there can be");
        }
        last = known;
        const char *letter = mr_pg_result_value(result, row, TYPE_LETTER);
        const char *name = mr_pg_result_value(result, row, TYPE_NAME);
        const char *modifier = mr_pg_result_value(result, row, TYPE_MODIFIER);
        pg_types_keep(types,
                      (struct mr_pg_type){
                          .oid = known,
                          .base_oid = (uint32_t)mr_pg_result_number(result, row, TYPE_BASE),
                          .modifier = modifier == NULL ? -1 : (int32_t)strtol(modifier, NULL, 10),
                          .element_oid = (uint32_t)mr_pg_result_number(result, row, TYPE_ELEMENT),
                          .kind = kind_of(letter[0], name),
                      });
    }
    return MR_OK;
}

mr_status mr_pg_types_read(struct mr_by_oid *types, struct mr_pg_conn *conn,
                           struct mr_error *ret_error)
{
    return read_types(types, conn, 0, ret_error);
}

mr_status mr_pg_types_ask(struct mr_by_oid *types, struct mr_pg_conn *conn, uint32_t oid,
                          struct mr_error *ret_error)
{
    MR_TRY(read_types(types, conn, oid, ret_error));
    struct mr_type type;
    if (!mr_pg_types_find(types, oid, -1, &type)) { /* it was dropped, or what it is made of */
        pg_types_keep(
            types,
            (struct mr_pg_type){.oid = oid, .modifier = -1, .kind = MR_TYPE_TEXT, .is_gone = true});
    }
    return MR_OK;
}

bool mr_pg_types_is_gone(const struct mr_by_oid *types, uint32_t oid)
{
    const struct mr_pg_type *known = pg_type_of(types, oid);
    return known != NULL && known->is_gone;
}

/* Domains followed to what they are over. False: something on the way was not read. */
static bool follow_domains(const struct mr_by_oid *types, struct mr_type *type, bool *ret_domain)
{
    for (int i = 0; type->oid >= MR_FIRST_USER_OID && i < DOMAINS_MAX; i++) {
        const struct mr_pg_type *known = pg_type_of(types, type->oid);
        if (known == NULL) {
            return false;
        }
        if (known->base_oid == 0) {
            break;
        }
        *ret_domain = true;
        type->oid = known->base_oid;
        type->modifier = known->modifier >= 0 ? known->modifier : type->modifier;
    }
    return true;
}

bool mr_pg_types_find(const struct mr_by_oid *types, uint32_t oid, int32_t modifier,
                      struct mr_type *ret_type)
{
    struct mr_type type = {.oid = oid, .modifier = modifier, .kind = MR_TYPE_BUILT_IN};
    bool is_domain = false;
    if (!follow_domains(types, &type, &is_domain)) {
        return false;
    }
    const struct mr_pg_type *known =
        type.oid < MR_FIRST_USER_OID ? NULL : pg_type_of(types, type.oid);
    if (known != NULL && known->element_oid != 0) {
        type.oid = known->element_oid;
        type.is_array = true;
        if (!follow_domains(types, &type, &type.is_of_domain)) {
            return false;
        }
        known = type.oid < MR_FIRST_USER_OID ? NULL : pg_type_of(types, type.oid);
    }
    type.kind = known == NULL ? MR_TYPE_BUILT_IN : known->kind;
    *ret_type = type;
    return true;
}
