#include "encode/values/types.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testing/test.h"

struct value {
    uint32_t oid;
    int32_t modifier;
    const char *text;
    const char *json; /* NULL: the text is refused */
};

enum { ARRAY = 1 }; /* the modifier of an extension's array */

static struct mr_scratch scratch;

/* The value in that form, or NULL when the text is refused. */
static const char *converted(const struct mr_encode_options *options, const struct value *value,
                             size_t len)
{
    static char room[4096];
    struct mr_column column = {.type_oid = value->oid, .type_modifier = value->modifier};
    if (value->oid >= MR_FIRST_USER_OID) {
        column.type.kind = (enum mr_type_kind)(value->oid - MR_FIRST_USER_OID);
        column.type.is_array = value->modifier == ARRAY;
    }
    struct mr_type_form form = mr_type_form(options, &column);
    if (form.writer == MR_WRITE_ABSENT) {
        return "(absent)";
    }
    if (form.writer != MR_WRITE_CONVERT) {
        return "(no conversion)";
    }
    form.conversion.element = &form.element;
    struct mr_buffer out = mr_buffer_init((uint8_t *)room, sizeof(room) - 1);
    mr_slice text = {.data = (const uint8_t *)value->text, .len = len};
    if (!form.conversion.write(&out, &form.conversion, text, &scratch)) {
        return NULL;
    }
    *out.at = '\0';
    return room;
}

static void assert_values(const struct mr_encode_options *options, const struct value *values,
                          size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *json = converted(options, &values[i], strlen(values[i].text));
        if (values[i].json == NULL ? json != NULL
                                   : json == NULL || strcmp(json, values[i].json) != 0) {
            fail_msg("type %u, modifier %d, %s: %s, not %s", values[i].oid, values[i].modifier,
                     values[i].text, json == NULL ? "refused" : json,
                     values[i].json == NULL ? "refused" : values[i].json);
        }
    }
    mr_scratch_done(&scratch);
    scratch = (struct mr_scratch){0};
}

/* A type of an extension. */
#define EXTENSION(kind) MR_FIRST_USER_OID + MR_TYPE_##kind

/* numeric(p,s) */
#define NUMERIC(precision, scale) ((precision) << 16 | ((scale)&0x7FF)) + 4

/* What Debezium 3.7.0 makes of these was seen by tests/test_debezium.py. */
static const struct value debezium[] = {
    {EXTENSION(GEOMETRY), -1, "010700000000000000",
     "{\"wkb\":\"AQcAAAAAAAAA\",\"srid\":null,\"extensions\":null}"},
    {EXTENSION(GEOMETRY), -1, "0107000020E610000000000000",
     "{\"wkb\":\"AQcAACDmEAAAAAAAAA==\",\"srid\":4326,\"extensions\":null}"},
    {EXTENSION(GEOMETRY), -1, "002000000700000CE600000000",
     "{\"wkb\":\"ACAAAAcAAAzmAAAAAA==\",\"srid\":3302,\"extensions\":null}"},
    {EXTENSION(GEOMETRY), -1, "0107000000000000", NULL},
    {EXTENSION(GEOMETRY), -1, "01070000000000000", NULL},
    {EXTENSION(GEOMETRY), -1, "0107000000000000G0", NULL},
    {EXTENSION(GEOMETRY), ARRAY, "{010700000000000000:NULL}",
     "[{\"wkb\":\"AQcAAAAAAAAA\",\"srid\":null,\"extensions\":null},null]"},
    {EXTENSION(GEOGRAPHY), -1, "0107000020FFFFFFFF00000000",
     "{\"wkb\":\"AQcAACD/////AAAAAA==\",\"srid\":-1}"},
    {EXTENSION(VECTOR), -1, "[1,-2.5,1e+10,0.1]", "[1.0,-2.5,1.0E10,0.1]"},
    {EXTENSION(VECTOR), -1, "[]", NULL},
    {EXTENSION(VECTOR), -1, "[1,]", NULL},
    {EXTENSION(VECTOR), -1, "[1]]", NULL},
    {EXTENSION(VECTOR), -1, "[\"]", NULL},
    {EXTENSION(HALFVEC), ARRAY, "{\"[1,0.099975586]\",NULL}", "[[1.0,0.099975586],null]"},
    {EXTENSION(SPARSEVEC), -1, "{}/3", "{\"dimensions\":3,\"vector\":[]}"},
    /* A HashMap of 2 buckets, which become 4 after the second entry; of 4 and 8; of 16. */
    {EXTENSION(SPARSEVEC), -1, "{5:1,8:-2}/9", "{\"dimensions\":9,\"vector\":[[8,-2.0],[5,1.0]]}"},
    {EXTENSION(SPARSEVEC), -1, "{1:1,4:1,8:1,12:1}/12",
     "{\"dimensions\":12,\"vector\":[[8,1.0],[1,1.0],[4,1.0],[12,1.0]]}"},
    {EXTENSION(SPARSEVEC), -1, "{65536:1,2147483647:0.5}/2147483647",
     "{\"dimensions\":2147483647,\"vector\":[[2147483647,0.5],[65536,1.0]]}"},
    {EXTENSION(SPARSEVEC), -1, "{2147483648:1}/3", NULL},
    {EXTENSION(SPARSEVEC), -1, "{1:}/3", NULL},
    {EXTENSION(SPARSEVEC), -1, "{1:,1:,1:,1:,1:,1:,1:,1:}/3", NULL},
    {EXTENSION(SPARSEVEC), -1, "{1:1}", NULL},
    {EXTENSION(SPARSEVEC), -1, "1:1}/2", NULL},
    {1700, -1, "10.1111", "{\"scale\":4,\"value\":\"AYr3\"}"},
    {1700, -1, "100.00", "{\"scale\":0,\"value\":\"ZA==\"}"},
    {1700, -1, "0", "{\"scale\":0,\"value\":\"AA==\"}"},
    {1700, -1, "-0.000001", "{\"scale\":6,\"value\":\"/w==\"}"},
    {1700, -1, "-12345678901234567890123456789012345678901234567890",
     "{\"scale\":0,\"value\":\"942AnJZVB8Ner9mLhQc4DmkxwPUu\"}"},
    {1700, -1, "NaN", "null"},
    {1700, -1, "1e5", NULL},
    {1700, -1, "", NULL},
    {1700, -1, "1\",\"x\":\"", NULL},
    {1700, NUMERIC(3, 2), "-1.28", "\"gA==\""},
    {1700, NUMERIC(3, 2), "1.28", "\"AIA=\""},
    {1700, NUMERIC(6, 4), "22.2200", "\"A2P4\""},
    {1700, NUMERIC(5, 0), "-32768", "\"gAA=\""},
    {1700, NUMERIC(3, 2), "1.234", NULL}, /* more digits than the type has */
    {1700, NUMERIC(5, -2), "1200", "\"BLA=\""},
    {790, -1, "-$2.50", "\"/wY=\""},
    {790, -1, "$92,233,720,368,547,758.07", "\"f/////////8=\""},
    {790, -1, "2,50 EUR", NULL},
    {700, -1, "1.5e-05", "1.5E-5"},
    {700, -1, "1e-45", "1.4E-45"},
    {701, -1, "1", "1.0"},
    {701, -1, "-0", "-0.0"},
    {701, -1, "9999999", "9999999.0"},
    {701, -1, "10000000", "1.0E7"},
    {701, -1, "0.001", "0.001"},
    {701, -1, "0.0009999", "9.999E-4"},
    {701, -1, "1.7976931348623157e+308", "1.7976931348623157E308"},
    {701, -1, "5e-324", "4.9E-324"},
    {701, -1, "NaN", "\"NaN\""},
    {701, -1, "nan", NULL},
    {17, -1, "\\x010203", "\"AQID\""},
    {17, -1, "\\x", "\"\""},
    {17, -1, "\\x0", NULL},
    {17, -1, "\\x0g", NULL},
    {1560, 1, "1", "true"},
    {1560, 1, "2", NULL},
    {1562, 1, "", "null"},
    {1560, 12, "100000000001", "\"AQg=\""},
    {1560, 3, "000", "\"\""},
    {1562, -1, "10000000000000000", "\"AAAB\""},
    {1082, -1, "1969-12-31", "-1"},
    {1082, -1, "infinity", "2146033979"},
    {1082, -1, "-infinity", "-2147472691"},
    {1082, -1, "4713-11-24 BC", "-2440222"},
    {1082, -1, "5874897-12-31", "2145042905"},
    {1082, -1, "2020-13-01", NULL},
    {1082, -1, "2020-02-29 AD", NULL},
    {1083, -1, "24:00:00", "86400000000"},
    {1083, 3, "23:59:59.999", "86399999"},
    {1083, 6, "04:05:06.789012", "14706789012"},
    {1083, -1, "04:05", NULL},
    {1266, -1, "24:00:00-01", "\"01:00:00Z\""},
    {1266, -1, "24:00:00+00", "\"24:00:00Z\""},
    {1266, -1, "24:00:00+00:00:30", "\"23:59:30Z\""},
    {1266, -1, "23:59:59.999999+05:30", "\"18:29:59.999999Z\""},
    {1266, -1, "01:00:00+14", "\"11:00:00Z\""},
    {1114, -1, "1969-12-31 23:59:59.999999", "-1"},
    {1114, -1, "4713-12-31 23:59:59.999999 BC", "-210831897600000001"},
    {1114, -1, "infinity", "9223372036854775807"},
    {1114, 0, "1969-12-31 23:59:59", "-1000"},
    {1114, 3, "2020-02-29 01:02:03.123", "1582938123123"},
    {1114, -1, "294247-01-10 04:00:54.775807", "9223372036854775807"},
    {1114, -1, "294276-12-31 23:59:59.999999", "9223372036854775807"},
    {1114, 3, "294276-12-31 23:59:59.999", "9224318015999999"},
    {1114, 3, "4714-11-24 00:00:00.001 BC", "-210866803199999"},
    {1114, -1, "2020-02-29 01:02:03+00", NULL},
    {1114, -1, "294277-01-01 00:00:00", NULL},
    {1114, 3, "999999999-01-01 00:00:00 BC", NULL},
    {1184, -1, "2020-02-29 01:02:03.5+00", "\"2020-02-29T01:02:03.500000Z\""},
    {1184, 0, "2020-02-29 01:02:00+00", "\"2020-02-29T01:02:00Z\""},
    {1184, 393222, "2020-02-29 01:02:03.5+00", "\"2020-02-29T01:02:03.500000Z\""}, /* a lie */
    {1184, -1, "4713-12-31 23:59:59.999999+00 BC", "\"-4712-12-31T23:59:59.999999Z\""},
    {1184, -1, "21016-11-04 13:51:30.123456+00", "\"+21016-11-04T13:51:30.123456Z\""},
    {1184, -1, "-infinity", "\"-infinity\""},
    {1184, -1, "2020-02-29 01:02:03+01", NULL}, /* the connection says UTC */
    {1186, -1, "1 year 2 mons 3 days 04:05:06.78", "37091106780000"},
    {1186, -1, "-1 years -2 mons +3 days -04:05:06.78", "-36572706780000"},
    {1186, -1, "00:00:00", "0"},
    {1186, -1, "178000000 years", "9223372036854775807"},
    {1186, -1, "1 fortnight", NULL},
    {1007, -1, "{1,NULL,-3}", "[1,null,-3]"},
    {1007, -1, "{}", "[]"},
    {1007, -1, "[2:3]={7,8}", "[7,8]"},
    {1007, -1, "{{1,2},{3,4}}", "[[1,2],[3,4]]"},
    {1007, -1, "{1,2", NULL},
    {1007, -1, "{1,2}}", NULL},
    {1007, -1, "{1,]}", NULL},
    {1007, -1, "1", NULL},
    {1007, -1, "{{{{{{{1}}}}}}}", NULL},
    {1009, -1, "{a,NULL,\"NULL\",\"\",\"quo\\\"it\",\"back\\\\slash\"}",
     "[\"a\",null,\"NULL\",\"\",\"quo\\\"it\",\"back\\\\slash\"]"},
    {1009, -1, "{\"a", NULL},
    {1231, NUMERIC(5, 2), "{1.10,NULL}", "[\"bg==\",null]"},
    {1115, 3, "{\"2020-02-29 01:02:03.123\"}", "[1582938123123]"},
    {1020, -1, "{(2,2),(1,1);(4,4),(3,3)}", "(absent)"},
    {600, -1, "(-0.5,1e+10)",
     "{\"x\":-0.5,\"y\":1.0E10,\"wkb\":\"AQEAAAAAAAAAAADgvwAAACBfoAJC\",\"srid\":null}"},
    {600, -1, "(1)", NULL},
    {628, -1, "{1,2,3}", "{\"a\":1.0,\"b\":2.0,\"c\":3.0}"},
    {602, -1, "((1,2))",
     "{\"wkb\":\"AQIAAAABAAAAAAAAAAAA8D8AAAAAAAAAQA==\",\"srid\":null,\"extensions\":{\"type\":"
     "\"path\",\"closed\":\"true\"}}"},
    {3220, -1, "16/B374D848", "(absent)"},
};

static const struct value plain[] = {
    {EXTENSION(GEOMETRY), -1, "010700000000000000", "(no conversion)"},
    {EXTENSION(GEOGRAPHY), ARRAY, "{010700000000000000:NULL}", "[\"010700000000000000\",null]"},
    {EXTENSION(VECTOR), -1, "[1,-2.5,1e+10]", "[1,-2.5,1e+10]"},
    {EXTENSION(VECTOR), -1, "[1,x]", NULL},
    {EXTENSION(HALFVEC), ARRAY, "{\"[1,2]\"}", "[[1,2]]"},
    {EXTENSION(SPARSEVEC), -1, "{1:1}/2", "(no conversion)"},
    {790, -1, "-$1,234.50", "\"-1234.50\""},
    {1082, -1, "0001-12-31 BC", "\"0000-12-31\""},
    {1082, -1, "0002-12-31 BC", "\"-0001-12-31\""},
    {1082, -1, "12345-06-07", "\"+12345-06-07\""},
    {1082, -1, "infinity", "\"infinity\""},
    {1266, -1, "04:05:06.789-02:30", "\"04:05:06.789-02:30\""},
    {1266, -1, "24:00:00+00", "\"24:00:00+00:00\""},
    {1114, -1, "2020-02-29 01:02:03.5", "\"2020-02-29T01:02:03.5\""},
    {1184, -1, "2020-02-29 01:02:03+00", "\"2020-02-29T01:02:03Z\""},
    {1186, -1, "1 year 2 mons 3 days 04:05:06.78", "\"P1Y2M3DT4H5M6.78S\""},
    {1186, -1, "-00:00:00.000001", "\"PT-0.000001S\""},
    {1186, -1, "00:00:00", "\"PT0S\""},
    {1186, -1, "-1 days +02:03:00", "\"P-1DT2H3M\""},
    {114, -1, "{\"a\": 1,\n \"a\": [null, true, -1.5e+3, \"\\u00e9\\n\"]}",
     "{\"a\":1,\"a\":[null,true,-1.5e+3,\"\\u00e9\\n\"]}"},
    {114, -1, " [ ] ", "[]"},
    {114, -1, "{}", "{}"},
    {114, -1, "\"text\"", "\"text\""},
    {114, -1, "{\"a\":1,}", NULL},
    {114, -1, "[1,]", NULL},
    {114, -1, "[1 2]", NULL},
    {114, -1, "{\"a\"}", NULL},
    {114, -1, "{\"a\":}", NULL},
    {114, -1, "{1:2}", NULL},
    {114, -1, "1 2", NULL},
    {114, -1, "", NULL},
    {114, -1, "[}", NULL},
    {114, -1, "01", NULL},
    {114, -1, "\"a\nb\"", NULL},
    {114, -1, "\"\\x\"", NULL},
    {114, -1, "1,\"x\":2", NULL},
    {199, -1, "{\"{\\\"a\\\": 1}\",NULL}", "[{\"a\":1},null]"},
    {1182, -1, "{2020-02-29,NULL}", "[\"2020-02-29\",null]"},
    {1020, -1, "{(2,2),(1,1);(4,4),(3,3)}", "[\"(2,2),(1,1)\",\"(4,4),(3,3)\"]"},
    {1001, -1, "{\"\\\\x0102\"}", "[\"AQI=\"]"},
};

static const struct mr_encode_options as_debezium = {.types = MR_TYPES_DEBEZIUM};
static const struct mr_encode_options as_plain = {.types = MR_TYPES_PLAIN};

#define MODES(...)                                                                                 \
    {                                                                                              \
        .types = MR_TYPES_DEBEZIUM, .modes = { __VA_ARGS__ }                                       \
    }

/* Seen from Debezium 3.7.0 by tests/test_debezium.py, as above. */
static const struct {
    struct mr_encode_options options;
    struct value value;
} moded[] = {
    {MODES(.decimal = MR_DECIMAL_STRING), {1700, -1, "100.00", "\"100.00\""}},
    {MODES(.decimal = MR_DECIMAL_STRING), {1700, -1, "NaN", "\"NAN\""}},
    {MODES(.decimal = MR_DECIMAL_STRING), {1700, -1, "-Infinity", "\"NEGATIVE_INFINITY\""}},
    {MODES(.decimal = MR_DECIMAL_STRING), {1700, -1, "1e5", NULL}},
    {MODES(.decimal = MR_DECIMAL_STRING), {790, -1, "-$1,234.50", "\"-1234.50\""}},
    {MODES(.decimal = MR_DECIMAL_STRING), {1231, -1, "{1.10,NULL}", "[\"1.10\",null]"}},
    {MODES(.decimal = MR_DECIMAL_DOUBLE), {1700, -1, "100.00", "100.0"}},
    {MODES(.decimal = MR_DECIMAL_DOUBLE), {1700, -1, "0.1", "0.1"}},
    {MODES(.decimal = MR_DECIMAL_DOUBLE), {1700, -1, "0", "0.0"}},
    {MODES(.decimal = MR_DECIMAL_DOUBLE), {1700, -1, "-0.000001", "-1.0E-6"}},
    {MODES(.decimal = MR_DECIMAL_DOUBLE),
     {1700, -1, "12345678901234567890.123", "1.2345678901234567E19"}},
    {MODES(.decimal = MR_DECIMAL_DOUBLE), {1700, -1, "NaN", "\"NaN\""}},
    {MODES(.decimal = MR_DECIMAL_DOUBLE), {790, -1, "$1,234.11", "1234.11"}},
    {MODES(.decimal = MR_DECIMAL_DOUBLE), {1700, -1, "1x", NULL}},
    {MODES(.binary = MR_BINARY_BASE64), {17, -1, "\\xfbff", "\"+/8=\""}},
    {MODES(.binary = MR_BINARY_BASE64_URL), {17, -1, "\\xfbff", "\"-_8=\""}},
    {MODES(.binary = MR_BINARY_HEX), {17, -1, "\\xfbff", "\"fbff\""}},
    {MODES(.binary = MR_BINARY_HEX), {17, -1, "\\x", "\"\""}},
    {MODES(.binary = MR_BINARY_HEX), {17, -1, "\\x0g", NULL}},
    {MODES(.binary = MR_BINARY_HEX), {1001, -1, "{\"\\\\x0102\"}", "[\"0102\"]"}},
    {MODES(.time = MR_TIME_ADAPTIVE_MICROSECONDS), {1083, 3, "00:00:01.5", "1500000"}},
    {MODES(.time = MR_TIME_ADAPTIVE_MICROSECONDS), {1114, 3, "1970-01-01 00:00:01", "1000"}},
    {MODES(.time = MR_TIME_CONNECT), {1083, -1, "00:00:01.5", "1500"}},
    {MODES(.time = MR_TIME_CONNECT), {1114, -1, "1969-12-31 23:59:59.999999", "-1"}},
    {MODES(.time = MR_TIME_CONNECT), {1082, -1, "1970-01-02", "1"}},
    {MODES(.time = MR_TIME_ISOSTRING), {1082, -1, "2020-02-29", "\"2020-02-29Z\""}},
    {MODES(.time = MR_TIME_ISOSTRING), {1083, -1, "04:05:06.789", "\"04:05:06.789Z\""}},
    {MODES(.time = MR_TIME_ISOSTRING), {1083, -1, "24:00:00", "\"00:00:00Z\""}},
    {MODES(.time = MR_TIME_ISOSTRING),
     {1114, -1, "2020-02-29 01:02:03.5", "\"2020-02-29T01:02:03.5Z\""}},
    {MODES(.time = MR_TIME_ISOSTRING), {1114, -1, "2020-02-29 01:02:03+00", NULL}},
    {MODES(.time = MR_TIME_MICROSECONDS), {1114, 0, "1970-01-01 00:00:01", "1000000"}},
    {MODES(.time = MR_TIME_NANOSECONDS), {1114, 0, "1970-01-01 00:00:01", "1000000000"}},
    {MODES(.time = MR_TIME_NANOSECONDS), {1083, -1, "24:00:00", "86400000000000"}},
    {MODES(.interval = MR_INTERVAL_STRING),
     {1186, -1, "1 year 2 mons 3 days 04:05:06.78", "\"P1Y2M3DT4H5M6.78S\""}},
    {MODES(.interval = MR_INTERVAL_STRING), {1186, -1, "00:00:00", "\"P0Y0M0DT0H0M0S\""}},
    {MODES(.interval = MR_INTERVAL_STRING), {1186, -1, "-infinity", "\"-infinity\""}},
    {MODES(.interval = MR_INTERVAL_STRING),
     {1186, -1, "-00:00:00.000001", "\"P0Y0M0DT0H0M-0.000001S\""}},
};

static void test_form_modes(void **state)
{
    (void)state;
    for (size_t i = 0; i < MR_ARRAY_LEN(moded); i++) {
        assert_values(&moded[i].options, &moded[i].value, 1);
    }
}

static void test_form_debezium(void **state)
{
    (void)state;
    assert_values(&as_debezium, debezium, sizeof(debezium) / sizeof(debezium[0]));
}

static void test_form_plain(void **state)
{
    (void)state;
    assert_values(&as_plain, plain, sizeof(plain) / sizeof(plain[0]));
}

/* A server that lies may end a text anywhere: that is read to its end and no further (the
 * sanitizers look). */
/* The fewest digits that strtod reads as `value`. */
static int least_digits(double value)
{
    char text[64];
    for (int digits = 1; digits < 17; digits++) {
        snprintf(text, sizeof(text), "%.*e", digits - 1, value);
        if (strtod(text, NULL) == value) {
            return digits;
        }
    }
    return 17;
}

static void test_a_decimal_as_a_double_is_the_shortest(void **state)
{
    (void)state;
    static const struct mr_encode_options options = MODES(.decimal = MR_DECIMAL_DOUBLE);
    unsigned random = 1;
    for (int i = 0; i < 20000; i++) {
        char text[64];
        char *at = text;
        int integer = 1 + rand_r(&random) % 12;
        int fraction = rand_r(&random) % 10;
        *at++ = (char)('1' + rand_r(&random) % 9);
        for (int k = 1; k < integer + fraction; k++) {
            if (k == integer) {
                *at++ = '.';
            }
            *at++ = (char)(rand_r(&random) % 3 == 0 ? '0' : '0' + rand_r(&random) % 10);
        }
        *at = '\0';
        const struct value value = {1700, -1, text, NULL};
        const char *got = converted(&options, &value, strlen(text));
        assert_true(strtod(got, NULL) == strtod(text, NULL));
        int digits = 0;
        int zeros = 0;
        for (const char *p = got; *p != '\0' && *p != 'E'; p++) {
            zeros = *p == '0' && digits > 0 ? zeros + 1 : *p == '.' ? zeros : 0;
            digits += *p >= '0' && *p <= '9' && (*p != '0' || digits > 0);
        }
        assert_int_equal(digits - zeros, least_digits(strtod(text, NULL)));
    }
    mr_scratch_done(&scratch);
    scratch = (struct mr_scratch){0};
}

static void test_form_cut_anywhere(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(debezium) / sizeof(debezium[0]); i++) {
        for (size_t len = 0; len < strlen(debezium[i].text); len++) {
            uint8_t *copy = malloc(len + 1);
            memcpy(copy, debezium[i].text, len);
            struct value value = debezium[i];
            value.text = (const char *)copy;
            copy = realloc(copy, len > 0 ? len : 1);
            value.text = (const char *)copy;
            converted(&as_debezium, &value, len);
            converted(&as_plain, &value, len);
            for (size_t mode = 0; mode < MR_ARRAY_LEN(moded); mode++) {
                converted(&moded[mode].options, &value, len);
            }
            free(copy);
        }
    }
    mr_scratch_done(&scratch);
    scratch = (struct mr_scratch){0};
}

static void test_convert_hstore(void **state)
{
    (void)state;
    char room[512];
    const char *text = "\"b c\"=>\"quo\\\"it\", \"a\"=>NULL, \"\"=>\"\"";
    struct mr_buffer out = mr_buffer_init((uint8_t *)room, sizeof(room) - 1);
    assert_true(mr_convert_hstore_object(&out, NULL, mr_slice_of(text), &scratch));
    *out.at = '\0';
    assert_string_equal(room, "{\"b c\":\"quo\\\"it\",\"a\":null,\"\":\"\"}");
    /* The buckets of the keys in a HashMap of 16: "" 0, "a" 97 & 15 = 1, "b c" 10. */
    out = mr_buffer_init((uint8_t *)room, sizeof(room) - 1);
    assert_true(mr_convert_hstore_string(&out, NULL, mr_slice_of(text), &scratch));
    *out.at = '\0';
    assert_string_equal(room,
                        "\"{\\\"\\\":\\\"\\\",\\\"a\\\":null,\\\"b c\\\":\\\"quo\\\\\\\"it\\\"}\"");
    for (size_t len = 1; len < strlen(text); len++) {
        out = mr_buffer_init((uint8_t *)room, sizeof(room));
        mr_slice cut = {.data = (const uint8_t *)text, .len = len};
        bool whole = len == 16 || len == 27; /* after a pair */
        assert_int_equal(mr_convert_hstore_object(&out, NULL, cut, &scratch), whole);
    }
    out = mr_buffer_init((uint8_t *)room, sizeof(room) - 1);
    assert_true(mr_convert_hstore_map(&out, NULL, mr_slice_of(text), &scratch));
    *out.at = '\0';
    assert_string_equal(room, "{\"\":\"\",\"a\":null,\"b c\":\"quo\\\"it\"}");
    mr_scratch_done(&scratch);
    scratch = (struct mr_scratch){0};
}

/* What is no UTF-8 is met in each form, the one of JSON within a string too, and base64 is of all
 * of it. */
static void test_convert_hstore_of_bytes(void **state)
{
    (void)state;
    static const mr_convert_fn forms[] = {mr_convert_hstore_object, mr_convert_hstore_map,
                                          mr_convert_hstore_string};
    mr_slice text = mr_slice_of("\"a\"=>\"b\\\"\xff\"");
    for (size_t i = 0; i < MR_ARRAY_LEN(forms); i++) {
        uint8_t bytes[256];
        struct mr_buffer out = mr_buffer_init(bytes, sizeof(bytes));
        assert_true(forms[i](&out, NULL, text, &scratch));
        assert_true(out.met_bytes);
        out = mr_buffer_init(bytes, sizeof(bytes));
        out.bytes_as_base64 = true;
        assert_true(forms[i](&out, NULL, text, &scratch));
        assert_true(out.met_bytes);
        assert_int_equal(out.at - bytes, 18);
        assert_memory_equal(bytes, "\"ImEiPT4iYlwi/yI=\"", 18);
        out = mr_buffer_init(bytes, sizeof(bytes));
        out.bytes_as_base64 = true;
        assert_true(forms[i](&out, NULL, mr_slice_of("\"a\"=>\"\xC3\xA9\""), &scratch));
        assert_false(out.met_bytes);
        assert_memory_equal(bytes, i < 2 ? "{\"a\":" : "\"{\\\"a", 5);
    }
    mr_scratch_done(&scratch);
    scratch = (struct mr_scratch){0};
}

static void test_unavailable(void **state)
{
    (void)state;
    static const struct {
        uint32_t oid;
        const char *json;
    } cases[] = {{25, "\"gone\""},
                 {17, "\"Z29uZQ==\""},
                 {1009, "[\"gone\"]"},
                 {1001, "[\"Z29uZQ==\"]"},
                 {1007, "[103,111,110,101]"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct mr_column column = {.type_oid = cases[i].oid, .type_modifier = -1};
        struct mr_type_form form = mr_type_form(&as_debezium, &column);
        char room[128];
        struct mr_buffer out = mr_buffer_init((uint8_t *)room, sizeof(room) - 1);
        mr_type_unavailable(
            &out, &(struct mr_plan_column){.rule = form.conversion.rule, .form = &form}, "gone");
        *out.at = '\0';
        assert_string_equal(room, cases[i].json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_form_debezium),
        cmocka_unit_test(test_form_plain),
        cmocka_unit_test(test_a_decimal_as_a_double_is_the_shortest),
        cmocka_unit_test(test_form_cut_anywhere),
        cmocka_unit_test(test_convert_hstore),
        cmocka_unit_test(test_convert_hstore_of_bytes),
        cmocka_unit_test(test_unavailable),
        cmocka_unit_test(test_form_modes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
