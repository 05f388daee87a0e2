#include "verify/forms.h"

/* Parts of the expressions. @ is the value, # how many digits of the second's fraction there
 * are. */

#define BASE64(bytes) "translate(encode(" bytes ", 'base64'), chr(10), '')"

#define LONG_MAX "9223372036854775807"
#define LONG_MIN "-9223372036854775808"
/* Of a number that is not null. */
#define CLAMPED(number) "greatest(least(" number ", " LONG_MAX "), " LONG_MIN ")"

/* An infinity has a value of its own. */
#define FINITE(value, plus, minus)                                                                 \
    "CASE WHEN isfinite(@) THEN " value " WHEN @ > " EPOCH " THEN " plus " WHEN @ < " EPOCH        \
    " THEN " minus " END"
#define EPOCH "'1970-01-01'"

/* ISO 8601: the year 0 is 1 BC, and years of more than four digits have a sign. */
#define YEAR(time)                                                                                 \
    "CASE WHEN extract(year FROM " time ") > 9999 THEN '+' ELSE '' END || to_char("                \
    "extract(year FROM " time ") + (extract(year FROM " time ") < 0)::int, 'FM9999990000')"
#define UTC "(@ AT TIME ZONE 'UTC')"

#define SINCE_EPOCH(units) "trunc(extract(epoch FROM @) * " units ")"

/* A month has 365.25 / 12 days. */
#define INTERVAL_MICROS                                                                            \
    "trunc((extract(year FROM @) * 12 + extract(month FROM @)) * 2629800000000"                    \
    " + extract(day FROM @) * 86400000000 + ((extract(hour FROM @) * 60"                           \
    " + extract(minute FROM @)) * 60 + extract(second FROM @)) * 1000000)"

/* Bytes from the last to the first, in hexadecimal. */
#define REVERSED_8(bytes)                                                                          \
    "regexp_replace(encode(" bytes ", 'hex'), '(..)(..)(..)(..)(..)(..)(..)(..)',"                 \
    " '\\8\\7\\6\\5\\4\\3\\2\\1')"
#define REVERSED_4(bytes)                                                                          \
    "regexp_replace(encode(" bytes ", 'hex'), '(..)(..)(..)(..)', '\\4\\3\\2\\1')"

/* All numbers of a shape's text, in hexadecimal as well-known binary has them (OGC 06-103r4). */
#define NUMBERS(shape)                                                                             \
    "(SELECT string_agg(" REVERSED_8(                                                              \
        "float8send(m[1]::float8)") ", '' ORDER BY n)"                                             \
                                    " FROM regexp_matches(" shape                                  \
                                    "::text, '[^][(){}<>,]+', 'g') WITH ORDINALITY AS t(m, n))"
#define COUNT(number) REVERSED_4("int4send(" number ")")
#define WKB(hex)      "'wkb', " BASE64("decode(" hex ", 'hex')")
#define OF_POINT(point)                                                                            \
    "json_build_object('x', (" point ")[0], 'y', (" point                                          \
    ")[1], " WKB("'0101000000' || " NUMBERS("(" point ")")) ", 'srid', NULL)"
#define OF_SHAPE(hex, extensions)                                                                  \
    "json_build_object(" WKB(hex) ", 'srid', NULL, 'extensions', json_build_object(" extensions "))"
#define UNLESS_NULL(value) "CASE WHEN @ IS NOT NULL THEN " value " END"

/* A ring from the upper right corner down: its text has that one and the lower left one, four
 * numbers of 16 digits. */
#define BOX_RING                                                                                   \
    "left(h, 32) || left(h, 16) || right(h, 16) || right(h, 32) || substr(h, 33, 16)"              \
    " || substr(h, 17, 16) || left(h, 32)"

/* EWKB, whose number of a reference system is there if a bit says so (PostGIS manual, 4.1.2). */
#define PLACE(more)                                                                                \
    "(SELECT json_build_object('wkb', " BASE64(                                                    \
        "g") ", 'srid', CASE WHEN get_byte(g, 4) & 32 <> 0"                                        \
             " THEN get_byte(g, 5) | (get_byte(g, 6) << 8) | (get_byte(g, 7) << 16)"               \
             " | (get_byte(g, 8) << 24)"                                                           \
             " END" more ") FROM (SELECT decode(@::text, 'hex') AS g) w WHERE @ IS NOT NULL)"

/* Least significant byte first, up to the highest bit that is set. */
#define BITS                                                                                       \
    "(SELECT " BASE64(                                                                             \
        "decode(coalesce(string_agg(lpad(to_hex(substr(b, i, 8)::bit(8)::int), 2,"                 \
        " '0'), '' ORDER BY i DESC), ''), 'hex')") " FROM (SELECT lpad(ltrim(@::text, '0'), "      \
                                                   "(length(ltrim(@::text, '0')) + 7) / 8 * 8, "   \
                                                   "'0') AS b"                                     \
                                                   ") p, generate_series(1, length(b), 8) i)"

#define DECIMAL_WORDS(number)                                                                      \
    "CASE " number "::text WHEN 'NaN' THEN 'NAN' WHEN 'Infinity' THEN 'POSITIVE_INFINITY'"         \
    " WHEN '-Infinity' THEN 'NEGATIVE_INFINITY' ELSE " number "::text END"

/* What decides between the rows of a type, and what is said of it. */
enum choice {
    ALWAYS,
    DECIMALS,
    BINARIES,
    DATES,
    CLOCKS,
    ZONED,
    INTERVALS,
    HSTORES,
    BIT_COUNT,
    CHOICES
};
enum unit { ISO, MILLIS, MICROS, NANOS };

/* Arrays: "" has the elements converted one by one; NULL: they are absent; else what makes JSON of
 * the whole. */
#define BY_ELEMENT ""
#define AS_JSON    "to_json(@)"

static const struct row {
    const char *types; /* their names */
    enum choice choice;
    int chosen;
    enum mr_verify_leaf leaf;
    enum mr_verify_shape shape;
    const char *sql;
    const char *array;
} rows[] = {
    {"bool int2 int4 int8", ALWAYS, 0, MR_LEAF_BARE, MR_SHAPE_LEAF, NULL, AS_JSON},
    {"oid", ALWAYS, 0, MR_LEAF_BARE, MR_SHAPE_LEAF, NULL, "to_json(@::bigint[])"},
    {"float4", ALWAYS, 0, MR_LEAF_REAL4, MR_SHAPE_LEAF, NULL, AS_JSON},
    {"float8", ALWAYS, 0, MR_LEAF_REAL8, MR_SHAPE_LEAF, NULL, AS_JSON},
    {"numeric", DECIMALS, MR_DECIMAL_PRECISE, MR_LEAF_DECIMAL, MR_SHAPE_LEAF, NULL, AS_JSON},
    {"numeric", DECIMALS, MR_DECIMAL_STRING, MR_LEAF_TEXT, MR_SHAPE_LEAF, DECIMAL_WORDS("@"),
     BY_ELEMENT},
    {"numeric", DECIMALS, MR_DECIMAL_DOUBLE, MR_LEAF_REAL8, MR_SHAPE_LEAF, NULL, AS_JSON},
    {"money", DECIMALS, MR_DECIMAL_PRECISE, MR_LEAF_DECIMAL, MR_SHAPE_LEAF, "@::numeric", NULL},
    {"money", DECIMALS, MR_DECIMAL_STRING, MR_LEAF_TEXT, MR_SHAPE_LEAF, "@::numeric", NULL},
    {"money", DECIMALS, MR_DECIMAL_DOUBLE, MR_LEAF_REAL8, MR_SHAPE_LEAF, "@::numeric", NULL},

    {"text varchar bpchar int4range int8range numrange tsrange tstzrange daterange citext ltree "
     "isbn isbn13 issn issn13 ismn ismn13 ean13 upc uuid inet cidr macaddr macaddr8",
     ALWAYS, 0, MR_LEAF_TEXT, MR_SHAPE_LEAF, NULL, AS_JSON},
    {"char name xml tsvector", ALWAYS, 0, MR_LEAF_TEXT, MR_SHAPE_LEAF, NULL, NULL},
    {"json jsonb", ALWAYS, 0, MR_LEAF_TEXT, MR_SHAPE_LEAF, NULL, "to_json(@::text[])"},
    {"hstore", HSTORES, MR_HSTORE_JSON, MR_LEAF_TEXT, MR_SHAPE_INNER, "@::json", AS_JSON},
    {"hstore", HSTORES, MR_HSTORE_MAP, MR_LEAF_TEXT, MR_SHAPE_TREE, "@::json", AS_JSON},

    {"bytea", BINARIES, MR_BINARY_BYTES, MR_LEAF_TEXT, MR_SHAPE_LEAF, BASE64("@"), BY_ELEMENT},
    {"bytea", BINARIES, MR_BINARY_BASE64, MR_LEAF_TEXT, MR_SHAPE_LEAF, BASE64("@"), BY_ELEMENT},
    {"bytea", BINARIES, MR_BINARY_BASE64_URL, MR_LEAF_TEXT, MR_SHAPE_LEAF,
     "translate(encode(@, 'base64'), '+/' || chr(10), '-_')", BY_ELEMENT},
    {"bytea", BINARIES, MR_BINARY_HEX, MR_LEAF_TEXT, MR_SHAPE_LEAF, "encode(@, 'hex')", BY_ELEMENT},
    {"bit", BIT_COUNT, 1, MR_LEAF_BARE, MR_SHAPE_LEAF, "nullif(@::text, '') = '1'", BY_ELEMENT},
    {"varbit", BIT_COUNT, 1, MR_LEAF_BARE, MR_SHAPE_LEAF, "nullif(@::text, '') = '1'", NULL},
    {"bit", BIT_COUNT, 0, MR_LEAF_TEXT, MR_SHAPE_LEAF, UNLESS_NULL(BITS), BY_ELEMENT},
    {"varbit", BIT_COUNT, 0, MR_LEAF_TEXT, MR_SHAPE_LEAF, UNLESS_NULL(BITS), NULL},

    {"date", DATES, 0, MR_LEAF_BARE, MR_SHAPE_LEAF,
     FINITE("@ - " EPOCH, "2146033979", "-2147472691"), BY_ELEMENT},
    {"date", DATES, 1, MR_LEAF_TEXT, MR_SHAPE_LEAF,
     FINITE(YEAR("@") " || substring(@::text, '-..-..') || 'Z'", "'+5877611-06-21Z'",
            "'-5877611-06-22Z'"),
     BY_ELEMENT},
    {"time", CLOCKS, MILLIS, MR_LEAF_BARE, MR_SHAPE_LEAF, SINCE_EPOCH("1000"), BY_ELEMENT},
    {"time", CLOCKS, MICROS, MR_LEAF_BARE, MR_SHAPE_LEAF, SINCE_EPOCH("1000000"), BY_ELEMENT},
    {"time", CLOCKS, NANOS, MR_LEAF_BARE, MR_SHAPE_LEAF, SINCE_EPOCH("1000000000"), BY_ELEMENT},
    {"time", CLOCKS, ISO, MR_LEAF_TEXT, MR_SHAPE_LEAF,
     "CASE @ WHEN '24:00' THEN '00:00:00' ELSE @::text END || 'Z'", BY_ELEMENT},
    {"timetz", ALWAYS, 0, MR_LEAF_TEXT, MR_SHAPE_LEAF,
     "CASE @ WHEN '24:00+00' THEN '24:00:00' ELSE " UTC "::time::text END || 'Z'", BY_ELEMENT},
    {"timestamp", CLOCKS, MILLIS, MR_LEAF_BARE, MR_SHAPE_LEAF,
     FINITE("floor(extract(epoch FROM @) * 1000)", "9223372036825200000", "-9223372036832400000"),
     BY_ELEMENT},
    {"timestamp", CLOCKS, MICROS, MR_LEAF_BARE, MR_SHAPE_LEAF,
     UNLESS_NULL(CLAMPED(SINCE_EPOCH("1000000"))), BY_ELEMENT},
    {"timestamp", CLOCKS, NANOS, MR_LEAF_BARE, MR_SHAPE_LEAF,
     "CASE WHEN NOT isfinite(@) OR abs(extract(epoch FROM @)) <= 9223372036.854775 THEN " CLAMPED(
         SINCE_EPOCH("1000000000")) " END",
     BY_ELEMENT},
    {"timestamp", CLOCKS, ISO, MR_LEAF_TEXT, MR_SHAPE_LEAF,
     FINITE(YEAR("@") " || to_char(@, '-MM-DD\"T\"') || @::time || 'Z'",
            "'+292278994-08-16T23:00:00Z'", "'-292275055-05-16T23:00:00Z'"),
     BY_ELEMENT},
    {"timestamptz", ZONED, 0, MR_LEAF_TEXT, MR_SHAPE_LEAF,
     FINITE(YEAR(UTC) " || to_char(" UTC ", '-MM-DD\"T\"HH24:MI:SS\"Z\"')", "'infinity'",
            "'-infinity'"),
     BY_ELEMENT},
    {"timestamptz", ZONED, 1, MR_LEAF_TEXT, MR_SHAPE_LEAF,
     FINITE(YEAR(UTC) " || to_char(" UTC ", '-MM-DD\"T\"HH24:MI:SS.FF#\"Z\"')", "'infinity'",
            "'-infinity'"),
     BY_ELEMENT},
    {"interval", INTERVALS, MR_INTERVAL_NUMERIC, MR_LEAF_BARE, MR_SHAPE_LEAF,
     "CASE WHEN isfinite(@) THEN " CLAMPED(INTERVAL_MICROS) " WHEN @ > '0' THEN " LONG_MAX
                                                            " WHEN @ < '0' THEN " LONG_MIN " END",
     NULL},
    {"interval", INTERVALS, MR_INTERVAL_STRING, MR_LEAF_TEXT, MR_SHAPE_LEAF,
     "CASE WHEN isfinite(@) THEN format('P%sY%sM%sDT%sH%sM%sS', extract(year FROM @),"
     " extract(month FROM @), extract(day FROM @), extract(hour FROM @), extract(minute FROM @),"
     " trim_scale(extract(second FROM @))) ELSE @::text END",
     NULL},

    {"point", ALWAYS, 0, MR_LEAF_REAL8, MR_SHAPE_TREE, UNLESS_NULL(OF_POINT("@")), NULL},
    {"circle", ALWAYS, 0, MR_LEAF_REAL8, MR_SHAPE_TREE,
     UNLESS_NULL("json_build_object('center', " OF_POINT("center(@)") ", 'radius', radius(@))"),
     NULL},
    {"line", ALWAYS, 0, MR_LEAF_REAL8, MR_SHAPE_TREE,
     "(SELECT json_build_object('a', n[1]::float8, 'b', n[2]::float8, 'c', n[3]::float8)"
     " FROM string_to_array(btrim(@::text, '{}'), ',') n WHERE @ IS NOT NULL)",
     NULL},
    {"lseg", ALWAYS, 0, MR_LEAF_REAL8, MR_SHAPE_TREE,
     UNLESS_NULL(OF_SHAPE("'010200000002000000' || " NUMBERS("@"), "'type', 'lseg'")), NULL},
    {"path", ALWAYS, 0, MR_LEAF_REAL8, MR_SHAPE_TREE,
     UNLESS_NULL(OF_SHAPE("'0102000000' || " COUNT("npoints(@)") " || " NUMBERS("@"),
                          "'type', 'path', 'closed', isclosed(@)::text")),
     NULL},
    {"box", ALWAYS, 0, MR_LEAF_REAL8, MR_SHAPE_TREE,
     "(SELECT " OF_SHAPE(
         "'01030000000100000005000000' || " BOX_RING,
         "'type', 'box'") " FROM (SELECT " NUMBERS("@") " AS h) s WHERE @ IS NOT NULL)",
     NULL},
    {"polygon", ALWAYS, 0, MR_LEAF_REAL8, MR_SHAPE_TREE,
     "(SELECT " OF_SHAPE(
         "'010300000001000000' || " COUNT("npoints(@) + 1") " || h || left(h, 32)",
         "'type', 'polygon'") " FROM (SELECT " NUMBERS("@") " AS h) s WHERE @ IS NOT NULL)",
     NULL},
    {"geometry", ALWAYS, 0, MR_LEAF_BARE, MR_SHAPE_TREE, PLACE(", 'extensions', NULL"), BY_ELEMENT},
    {"geography", ALWAYS, 0, MR_LEAF_BARE, MR_SHAPE_TREE, PLACE(""), BY_ELEMENT},
    {"vector", ALWAYS, 0, MR_LEAF_REAL8, MR_SHAPE_TREE, "@::text", NULL},
    {"halfvec", ALWAYS, 0, MR_LEAF_REAL4, MR_SHAPE_TREE, "@::text", NULL},
    {"sparsevec", ALWAYS, 0, MR_LEAF_TEXT, MR_SHAPE_UNKNOWN, NULL, NULL},

    {"refcursor int4multirange int8multirange nummultirange tsmultirange tstzmultirange "
     "datemultirange pg_lsn xid xid8 cid tid int2vector oidvector tsquery gtsvector jsonpath "
     "txid_snapshot pg_snapshot aclitem regproc regprocedure regoper regoperator regclass "
     "regcollation regtype regrole regnamespace regconfig regdictionary",
     ALWAYS, 0, MR_LEAF_TEXT, MR_SHAPE_ABSENT, NULL, NULL},
};

/* Days and the rest apart: an interval's product is one of floating-point numbers. */
#define AFTER_EPOCH(micros)                                                                        \
    "timestamp 'epoch' + " micros " / 86400000000 * interval '1 day' + " micros                    \
    " % 86400000000 * interval '1 us'"

/* A whole number in two's complement, its most significant byte first, with # of its digits after
 * the point. */
#define UNSCALED                                                                                   \
    "(SELECT round((n - CASE WHEN get_byte(b, 0) > 127 THEN 256::numeric ^ length(b) ELSE 0 END)"  \
    " * 10::numeric ^ (-#), #) FROM (SELECT b, (SELECT sum(get_byte(b, i) *"                       \
    " 256::numeric ^ (length(b) - 1 - i)) FROM generate_series(0, length(b) - 1) i) AS n"          \
    " FROM (SELECT decode(@, 'base64') AS b) c) d)"

/* And back again: the value of an event's text @; "": that is the server's text. A type that is not
 * here has no way back, because its events do not say the whole value. Of a text that is none of an
 * event's, the server may make another value, or an error: who asks compares what an event of that
 * value has. */
static const struct {
    const char *types;
    enum choice choice;
    int chosen;
    const char *sql;
} backs[] = {
    {"bool int2 int4 int8 oid text varchar bpchar int4range int8range numrange tsrange tstzrange "
     "daterange citext ltree isbn isbn13 issn issn13 ismn ismn13 ean13 upc uuid inet cidr macaddr "
     "macaddr8 char name xml tsvector json jsonb",
     ALWAYS, 0, ""},
    {"float4", ALWAYS, 0, "@::float4"},
    {"float8", ALWAYS, 0, "@::float8"},
    {"numeric", DECIMALS, MR_DECIMAL_PRECISE, UNSCALED},
    {"numeric", DECIMALS, MR_DECIMAL_STRING, "@::numeric"},
    {"bytea", BINARIES, MR_BINARY_BYTES, "decode(@, 'base64')"},
    {"bytea", BINARIES, MR_BINARY_BASE64, "decode(@, 'base64')"},
    {"bytea", BINARIES, MR_BINARY_BASE64_URL, "decode(translate(@, '-_', '+/'), 'base64')"},
    {"bytea", BINARIES, MR_BINARY_HEX, "decode(@, 'hex')"},
    {"bit varbit", BIT_COUNT, 1, "(CASE @ WHEN 't' THEN '1' ELSE '0' END)"},
    {"date", DATES, 0, "(date '1970-01-01' + @::int)"},
    {"date", DATES, 1, "rtrim(@, 'Z')::date"},
    {"time", CLOCKS, MILLIS, "(time '00:00' + @::bigint * interval '1 ms')"},
    {"time", CLOCKS, MICROS, "(time '00:00' + @::bigint * interval '1 us')"},
    {"time", CLOCKS, NANOS, "(time '00:00' + @::bigint / 1000 * interval '1 us')"},
    {"time", CLOCKS, ISO, "rtrim(@, 'Z')::time"},
    {"timestamp", CLOCKS, MILLIS, AFTER_EPOCH("(@::bigint * 1000)")},
    {"timestamp", CLOCKS, MICROS, AFTER_EPOCH("@::bigint")},
    {"timestamp", CLOCKS, NANOS, AFTER_EPOCH("(@::bigint / 1000)")},
    {"timestamp", CLOCKS, ISO, "rtrim(@, 'Z')::timestamp"},
    {"timestamptz", ZONED, 0, "@::timestamptz"},
    {"timestamptz", ZONED, 1, "@::timestamptz"},
    {"interval", INTERVALS, MR_INTERVAL_STRING, "@::interval"},
};

static bool forms_is_word(const char *names, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = names; (at = strstr(at, name)) != NULL; at += len) {
        if ((at == names || at[-1] == ' ') && (at[len] == ' ' || at[len] == '\0')) {
            return len > 0;
        }
    }
    return false;
}

static enum unit unit_of(enum mr_time_mode mode, const struct mr_verify_type *type)
{
    static const enum unit units[] = {[MR_TIME_CONNECT] = MILLIS,
                                      [MR_TIME_ISOSTRING] = ISO,
                                      [MR_TIME_MICROSECONDS] = MICROS,
                                      [MR_TIME_NANOSECONDS] = NANOS};
    bool is_adaptive = mode == MR_TIME_ADAPTIVE || mode == MR_TIME_ADAPTIVE_MICROSECONDS;
    bool is_coarse = type->modifier >= 0 && type->modifier <= 3;
    if (!is_adaptive) {
        return units[mode];
    }
    return is_coarse && (mode == MR_TIME_ADAPTIVE || strcmp(type->name, "time") != 0) ? MILLIS
                                                                                      : MICROS;
}

static const struct row *forms_find_row(const struct mr_value_modes *modes,
                                        const struct mr_verify_type *type)
{
    const int chosen[CHOICES] = {[DECIMALS] = (int)modes->decimal,
                                 [BINARIES] = (int)modes->binary,
                                 [DATES] = modes->time == MR_TIME_ISOSTRING,
                                 [CLOCKS] = (int)unit_of(modes->time, type),
                                 [ZONED] = type->modifier != 0,
                                 [INTERVALS] = (int)modes->interval,
                                 [HSTORES] = (int)modes->hstore,
                                 [BIT_COUNT] = type->modifier == 1};
    return MR_FIND(one, rows, MR_ARRAY_LEN(rows),
                   one->chosen == chosen[one->choice] && forms_is_word(one->types, type->name));
}

/* NULL: there is none. A rounded time, and a decimal of any scale, whose events have no zeros at
 * the end of its fraction, are not whole. */
static const char *find_back(const struct row *row, const struct mr_verify_type *type)
{
    bool is_rounded = row->choice == CLOCKS && row->chosen == MILLIS &&
                      (type->modifier < 0 || type->modifier > 3);
    bool is_bare = row->leaf == MR_LEAF_DECIMAL && type->modifier < 0;
    for (size_t i = 0; i < MR_ARRAY_LEN(backs) && !is_rounded && !is_bare; i++) {
        if (backs[i].choice == row->choice && backs[i].chosen == row->chosen &&
            forms_is_word(backs[i].types, type->name)) {
            return backs[i].sql;
        }
    }
    return NULL;
}

/* pg_attribute.atttypmod of a numeric (numeric.c: numeric_typmod_scale): 11 bits with a sign. A
 * negative scale is none here. */
static uint32_t scale_of(const struct mr_verify_type *type)
{
    int32_t bits = type->modifier < 0 ? 0 : (type->modifier - 4) & 0x7ff;
    return strcmp(type->name, "money") == 0 ? 2 : bits >= 0x400 ? 0 : (uint32_t)bits;
}

/* An array of a type that has this form. */
static struct mr_verify_form array_of(struct mr_verify_form form, const struct row *row,
                                      bool is_compared, bool has_schema)
{
    /* As the server writes it, and not as JSON that it is. */
    static const char as_text[] = "CASE WHEN @ IS NOT NULL THEN format('%s', @) END";
    if (row->array == NULL) {
        form.shape = is_compared ? MR_SHAPE_ABSENT : MR_SHAPE_UNKNOWN;
    } else if (has_schema && form.shape != MR_SHAPE_LEAF && row->array[0] != '\0') {
        form.shape = MR_SHAPE_UNKNOWN;
    } else if (has_schema || row->array[0] == '\0') {
        form.sql = row->sql != NULL ? row->sql : form.leaf == MR_LEAF_TEXT ? as_text : "@";
        form.shape = MR_SHAPE_FLAT;
    } else {
        form.shape = form.shape == MR_SHAPE_LEAF ? MR_SHAPE_TREE : form.shape;
        form.sql = row->array;
    }
    form.is_text = false;
    return form;
}

struct mr_verify_form mr_verify_form_of(const struct mr_value_modes *modes,
                                        const struct mr_verify_type *type, bool has_schema)
{
    /* As text: to_json would call a cast to json that the type's owner made (json_categorize_type
     * in src/backend/utils/adt/jsonfuncs.c). */
    static const struct row of_enum = {.leaf = MR_LEAF_TEXT,
                                       .array = "to_json(textin(array_out(@))::text[])"};
    bool is_known = type->is_built_in || type->kind == 'b';
    const struct row *row = type->kind == 'e' ? &of_enum
                            : is_known        ? forms_find_row(modes, type)
                                              : NULL;
    if (row ==
        NULL) { /* a built-in one is of a later version, and text in events, or text of a row */
        return (struct mr_verify_form){.shape =
                                           type->is_built_in ? MR_SHAPE_UNKNOWN : MR_SHAPE_ABSENT};
    }
    bool is_of_extension =
        forms_is_word("geometry geography vector halfvec sparsevec", type->name) &&
        !type->is_built_in;
    struct mr_verify_form form = {
        .leaf = row->leaf,
        .shape = row->shape,
        .scale = scale_of(type),
        .is_scaled = type->modifier < 0 && strcmp(type->name, "numeric") == 0,
        .is_text = row->leaf == MR_LEAF_TEXT && row->sql == NULL &&
                   !forms_is_word("uuid inet cidr macaddr macaddr8", type->name),
        .is_hidden = is_of_extension,
        .digits = type->modifier > 0 && type->modifier < 6 ? type->modifier : 6,
        .sql = row->sql,
        .back = type->is_array    ? NULL
                : row == &of_enum ? ""
                                  : find_back(row, type)};
    return type->is_array ? array_of(form, row, !is_of_extension, has_schema) : form;
}

/* `sql` with `value` for each @. */
static void add_expression(struct mr_text *text, const char *sql, const char *value, int digits)
{
    for (const char *at = sql; *at != '\0'; at++) {
        if (*at == '@') {
            mr_text_string(text, value);
        } else if (*at == '#') {
            mr_text_format(text, "%d", digits);
        } else {
            mr_text_add(text, at, 1);
        }
    }
}

void mr_verify_form_back_sql(const struct mr_verify_form *form, const char *text,
                             struct mr_text *sql)
{
    add_expression(sql, form->back[0] == '\0' ? "@" : form->back, text, (int)form->scale);
}

void mr_verify_form_sql(const struct mr_verify_form *form, const char *name, struct mr_text *sql)
{
    if (form->shape != MR_SHAPE_FLAT) {
        add_expression(sql, form->sql == NULL ? "@" : form->sql, name, form->digits);
        return;
    }
    add_expression(sql, "CASE WHEN @ IS NOT NULL THEN (SELECT coalesce(json_agg(", name, 0);
    add_expression(sql, form->sql, "v", form->digits);
    add_expression(sql, " ORDER BY o), '[]') FROM unnest(@) WITH ORDINALITY AS u(v, o)) END", name,
                   0);
}
