/* Dates, times and intervals, as PostgreSQL prints them with DateStyle ISO, IntervalStyle postgres
 * and TimeZone UTC (datetime.c: EncodeDateTime, EncodeTimeOnly, EncodeInterval). */

#include "encode/values/convert.h"
#include "encode/values/put.h"

#define MICROS_A_SECOND INT64_C(1000000)
#define SECONDS_A_DAY   INT64_C(86400)
#define MICROS_A_DAY    (SECONDS_A_DAY * MICROS_A_SECOND)

/* A calendar day; year 0 is 1 BC. */
struct day {
    int64_t year;
    int64_t month;
    int64_t day;
};

struct moment {
    struct day day;
    int64_t micros;       /* since midnight, up to 24:00 */
    int64_t zone_seconds; /* east of UTC */
    int infinite;         /* -1, 1; 0: it is not */
};

/* Days since 1970 in the Gregorian calendar, extended to all years; years begin in March here, so
 * that the leap day is their last. */
static int64_t days_since_1970(struct day day)
{
    int64_t year = day.year - (day.month <= 2);
    int64_t era = (year >= 0 ? year : year - 399) / 400;
    int64_t year_of_era = year - era * 400;
    int64_t month = day.month > 2 ? day.month - 3 : day.month + 9;
    int64_t day_of_year = (153 * month + 2) / 5 + day.day - 1;
    return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year -
           719468;
}

static bool take_day(struct mr_cursor *cursor, struct day *ret)
{
    return mr_cursor_number(cursor, 4, 9, &ret->year) && mr_cursor_take(cursor, '-') &&
           mr_cursor_number(cursor, 2, 2, &ret->month) && mr_cursor_take(cursor, '-') &&
           mr_cursor_number(cursor, 2, 2, &ret->day) && ret->month >= 1 && ret->month <= 12 &&
           ret->day >= 1 && ret->day <= 31;
}

/* HH:MM:SS[.ffffff]; more than two digits of hours in an interval. */
static bool take_clock(struct mr_cursor *cursor, unsigned hour_digits, int64_t *ret_micros)
{
    int64_t hours;
    int64_t minutes;
    int64_t seconds;
    int64_t fraction = 0;
    if (!mr_cursor_number(cursor, 2, hour_digits, &hours) || !mr_cursor_take(cursor, ':') ||
        !mr_cursor_number(cursor, 2, 2, &minutes) || !mr_cursor_take(cursor, ':') ||
        !mr_cursor_number(cursor, 2, 2, &seconds)) {
        return false;
    }
    if (mr_cursor_take(cursor, '.')) {
        const uint8_t *begin = cursor->at;
        if (!mr_cursor_number(cursor, 1, 6, &fraction)) {
            return false;
        }
        for (size_t digits = (size_t)(cursor->at - begin); digits < 6; digits++) {
            fraction *= 10;
        }
    }
    /* The longest interval is 2^63 microseconds. */
    return !__builtin_mul_overflow(hours * 3600 + minutes * 60 + seconds, MICROS_A_SECOND,
                                   ret_micros) &&
           !__builtin_add_overflow(*ret_micros, fraction, ret_micros);
}

/* +HH[:MM[:SS]] */
static bool take_zone(struct mr_cursor *cursor, int64_t *ret_seconds)
{
    bool west = mr_cursor_take(cursor, '-');
    int64_t parts[3] = {0};
    if (!west && !mr_cursor_take(cursor, '+')) {
        return false;
    }
    for (int i = 0; i < 3 && (i == 0 || mr_cursor_take(cursor, ':')); i++) {
        if (!mr_cursor_number(cursor, 2, 2, &parts[i])) {
            return false;
        }
    }
    int64_t seconds = parts[0] * 3600 + parts[1] * 60 + parts[2];
    *ret_seconds = west ? -seconds : seconds;
    return true;
}

static bool take_era(struct mr_cursor *cursor, struct day *day)
{
    if (mr_cursor_ended(cursor)) {
        return true;
    }
    day->year = 1 - day->year;
    return mr_cursor_take_word(cursor, MR_SLICE(" BC")) && mr_cursor_ended(cursor);
}

static int infinity_of(mr_slice text)
{
    if (mr_slice_equal(text, MR_SLICE("infinity"))) {
        return 1;
    }
    return mr_slice_equal(text, MR_SLICE("-infinity")) ? -1 : 0;
}

static bool parse_date(mr_slice text, struct moment *ret)
{
    *ret = (struct moment){.infinite = infinity_of(text)};
    struct mr_cursor cursor = mr_cursor_of(text);
    return ret->infinite != 0 || (take_day(&cursor, &ret->day) && take_era(&cursor, &ret->day));
}

/* A timestamp; one with a zone has it. */
static bool parse_stamp(mr_slice text, struct moment *ret, bool *ret_zoned)
{
    *ret = (struct moment){.infinite = infinity_of(text)};
    if (ret->infinite != 0) {
        return true;
    }
    struct mr_cursor cursor = mr_cursor_of(text);
    if (!take_day(&cursor, &ret->day) || !mr_cursor_take(&cursor, ' ') ||
        !take_clock(&cursor, 2, &ret->micros)) {
        return false;
    }
    *ret_zoned = mr_cursor_is_at(&cursor, '+') || mr_cursor_is_at(&cursor, '-');
    return (!*ret_zoned || take_zone(&cursor, &ret->zone_seconds)) && take_era(&cursor, &ret->day);
}

/* What Debezium 3.7 makes of the infinities: the low 32 bits of the days of the driver's
 * constants. */
enum { DAYS_INFINITE = 2146033979, DAYS_MINUS_INFINITE = -2147472691 };

/* Since 1970. */
MR_CONVERT(days)
{
    struct moment moment;
    if (!parse_date(text, &moment)) {
        return false;
    }
    mr_put_int(out, moment.infinite == 0  ? days_since_1970(moment.day)
                    : moment.infinite > 0 ? DAYS_INFINITE
                                          : DAYS_MINUS_INFINITE);
    return true;
}

/* Nanoseconds end in the year 2262: after that, and before 1677, Debezium fails to convert a value,
 * and has null. */
static void write_fine(struct mr_buffer *out, int64_t micros, int32_t digits)
{
    int64_t nanos;
    if (digits != 9) {
        mr_put_long(out, micros);
    } else if (__builtin_mul_overflow(micros, 1000, &nanos)) {
        mr_put_null(out);
    } else {
        mr_put_long(out, nanos);
    }
}

/* The driver's constants in milliseconds, and all that is less than that stands for in 64 bits. */
#define MILLIS_INFINITE       INT64_C(9223372036825200000)
#define MILLIS_MINUS_INFINITE INT64_C(-9223372036832400000)

static void write_infinite(struct mr_buffer *out, int sign, int32_t digits)
{
    if (digits == 3) {
        mr_put_long(out, sign > 0 ? MILLIS_INFINITE : MILLIS_MINUS_INFINITE);
    } else {
        mr_put_long(out, sign > 0 ? INT64_MAX : INT64_MIN);
    }
}

/* What a timestamp may be (manual, 8.5: 4713 BC, whose November it is in the Julian calendar, to
 * 294276). */
enum { YEAR_FIRST = -4713, YEAR_LAST = 294276 };

/* Microseconds since 1970 end in the January of 294247. What is later has the largest number, as in
 * Debezium (TimeUnit.toMicros), which is what it has for the infinity. */
MR_CONVERT(epoch)
{
    struct moment moment;
    bool zoned = false;
    if (!parse_stamp(text, &moment, &zoned) || zoned) {
        return false;
    }
    if (moment.infinite != 0) {
        write_infinite(out, moment.infinite, how->detail);
        return true;
    }
    if (moment.day.year > YEAR_LAST || moment.day.year < YEAR_FIRST) {
        return false;
    }
    int64_t days = days_since_1970(moment.day);
    int64_t micros;
    if (how->detail == 3) {
        mr_put_long(out, days * (MICROS_A_DAY / 1000) + moment.micros / 1000);
    } else if (!__builtin_mul_overflow(days, MICROS_A_DAY, &micros) &&
               !__builtin_add_overflow(micros, moment.micros, &micros)) {
        write_fine(out, micros, how->detail);
    } else if (how->detail == 9) {
        mr_put_null(out);
    } else {
        mr_put_long(out, INT64_MAX);
    }
    return true;
}

/* Milli-, micro- or nanoseconds (`detail` 3, 6 or 9) since midnight. */
MR_CONVERT(clock)
{
    struct mr_cursor cursor = mr_cursor_of(text);
    int64_t micros;
    if (!take_clock(&cursor, 2, &micros) || !mr_cursor_ended(&cursor)) {
        return false;
    }
    if (how->detail == 3) {
        mr_put_int(out, micros / 1000);
    } else {
        write_fine(out, micros, how->detail);
    }
    return true;
}

enum { ISO_MAX = 64 };

/* Writes the last `count` decimal digits of a number, and answers where they end: each time stamp
 * of a row comes here, and snprintf was a wide box in its flame graph. */
static char *print_digits(char *at, int64_t number, int count)
{
    for (int i = count - 1; i >= 0; i--) {
        at[i] = (char)('0' + number % 10);
        number /= 10;
    }
    return at + count;
}

/* Years of four digits, with a sign outside 0000 to 9999 (ISO 8601, expanded representation). */
static int print_day(char *room, struct day day)
{
    char *at = room;
    int64_t year = day.year < 0 ? -day.year : day.year;
    int digits = 4;
    for (int64_t rest = year / 10000; rest > 0; rest /= 10) {
        digits++;
    }
    if (day.year < 0 || year > 9999) {
        *at++ = day.year < 0 ? '-' : '+';
    }
    at = print_digits(at, year, digits);
    *at++ = '-';
    at = print_digits(at, day.month, 2);
    *at++ = '-';
    return (int)(print_digits(at, day.day, 2) - room);
}

/* HH:MM:SS and `digits` of the fraction; -1: as many as there are, none if it is zero. */
static int print_clock(char *room, int64_t micros, int digits)
{
    int64_t seconds = micros / MICROS_A_SECOND;
    char *at = print_digits(room, seconds / 3600, 2);
    *at++ = ':';
    at = print_digits(at, seconds / 60 % 60, 2);
    *at++ = ':';
    at = print_digits(at, seconds % 60, 2);
    *at++ = '.';
    int len = (int)(print_digits(at, micros % MICROS_A_SECOND, 6) - room);
    if (digits < 0) {
        while (room[len - 1] == '0') {
            len--;
        }
        return len - (room[len - 1] == '.');
    }
    return digits == 0 ? len - 7 : len - 6 + digits;
}

static void quote(struct mr_buffer *out, const char *text, int len)
{
    if (MR_UNLIKELY(out->is_avro)) {
        mr_avro_bytes(out, (const uint8_t *)text, (size_t)len);
        return;
    }
    MR_BUFFER_LITERAL(out, "\"");
    mr_buffer_append(out, text, (size_t)len);
    MR_BUFFER_LITERAL(out, "\"");
}

/* An infinity: of types without a zone as a constant of the driver, else as PostgreSQL prints
 * it. */
static void put_infinity(struct mr_buffer *out, mr_slice text, const char *constant)
{
    mr_put_slice(out, constant == NULL ? text : mr_slice_of(constant));
}

/* A date; as UTC with a Z after it. */
MR_CONVERT(date_text)
{
    bool is_utc = how->rule == MR_RULE_UTC_DATE;
    struct moment moment;
    if (!parse_date(text, &moment)) {
        return false;
    }
    if (moment.infinite != 0) {
        put_infinity(out, text,
                     !is_utc               ? NULL
                     : moment.infinite > 0 ? "+5877611-06-21Z"
                                           : "-5877611-06-22Z");
        return true;
    }
    char room[ISO_MAX];
    int len = print_day(room, moment.day);
    room[len] = 'Z';
    quote(out, room, len + is_utc);
    return true;
}

/* A timestamp. The server prints in UTC, because the connection says so. */
MR_CONVERT(stamp_text)
{
    bool is_utc = how->rule == MR_RULE_UTC_STAMP;
    struct moment moment;
    bool zoned = false;
    if (!parse_stamp(text, &moment, &zoned) || moment.zone_seconds != 0 || (is_utc && zoned)) {
        return false;
    }
    if (moment.infinite != 0) {
        put_infinity(out, text,
                     !is_utc               ? NULL
                     : moment.infinite > 0 ? "+292278994-08-16T23:00:00Z"
                                           : "-292275055-05-16T23:00:00Z");
        return true;
    }
    if (how->rule == MR_RULE_ZONED_EPOCH && !zoned) {
        return false;
    }
    char room[2 * ISO_MAX];
    int len = print_day(room, moment.day);
    room[len++] = 'T';
    len += print_clock(room + len, moment.micros, how->detail);
    room[len] = 'Z';
    quote(out, room, len + (is_utc || zoned));
    return true;
}

static int print_zone(char *room, int64_t zone)
{
    int64_t seconds = zone < 0 ? -zone : zone;
    int len = snprintf(room, ISO_MAX, "%c%02d:%02d", zone < 0 ? '-' : '+', (int)(seconds / 3600),
                       (int)(seconds / 60 % 60));
    if (seconds % 60 != 0) {
        len += snprintf(room + len, 8, ":%02d", (int)(seconds % 60));
    }
    return len;
}

/* A time: with its zone (ISO), moved to UTC (ZONED), or without one, as if it were UTC. */
MR_CONVERT(clock_text)
{
    struct mr_cursor cursor = mr_cursor_of(text);
    int64_t micros;
    int64_t zone = 0;
    if (!take_clock(&cursor, 2, &micros) ||
        (how->rule != MR_RULE_UTC_CLOCK && !take_zone(&cursor, &zone)) ||
        !mr_cursor_ended(&cursor)) {
        return false;
    }
    /* Debezium's PostgresTimeBoundary keeps the midnight of UTC that ends a day; else 24:00 is the
     * next day's. */
    bool is_kept = how->rule == MR_RULE_ISO_CLOCK ||
                   (how->rule == MR_RULE_ZONED_CLOCK && micros == MICROS_A_DAY && zone == 0);
    if (!is_kept) {
        micros = (micros - zone * MICROS_A_SECOND) % MICROS_A_DAY;
        micros += micros < 0 ? MICROS_A_DAY : 0;
    }
    char room[2 * ISO_MAX];
    int len = print_clock(room, micros, -1);
    if (how->rule == MR_RULE_ISO_CLOCK) {
        len += print_zone(room + len, zone);
    } else {
        room[len++] = 'Z';
    }
    quote(out, room, len);
    return true;
}

struct span {
    int64_t months;
    int64_t days;
    int64_t micros;
};

/* In the singular or the plural. */
static bool convert_time_take_unit(struct mr_cursor *cursor, mr_slice word)
{
    if (!mr_cursor_take_word(cursor, word)) {
        return false;
    }
    mr_cursor_take(cursor, 's');
    return true;
}

/* `N year[s]`, `N mon[s]`, `N day[s]` or `HH:MM:SS`, each with a sign of its own. */
static bool convert_time_take_part(struct mr_cursor *cursor, struct span *span)
{
    bool negative = mr_cursor_take(cursor, '-');
    if (!negative) {
        mr_cursor_take(cursor, '+');
    }
    struct mr_cursor begin = *cursor;
    int64_t number;
    if (!mr_cursor_number(cursor, 1, 12, &number)) {
        return false;
    }
    int64_t sign = negative ? -1 : 1;
    if (mr_cursor_is_at(cursor, ':')) {
        *cursor = begin;
        bool good = take_clock(cursor, 12, &span->micros);
        span->micros *= sign;
        return good;
    }
    if (!mr_cursor_take(cursor, ' ')) {
        return false;
    }
    if (convert_time_take_unit(cursor, MR_SLICE("year"))) {
        span->months += 12 * sign * number;
    } else if (convert_time_take_unit(cursor, MR_SLICE("mon"))) {
        span->months += sign * number;
    } else if (convert_time_take_unit(cursor, MR_SLICE("day"))) {
        span->days += sign * number;
    } else {
        return false;
    }
    return true;
}

static bool parse_span(mr_slice text, struct span *ret)
{
    *ret = (struct span){0};
    struct mr_cursor cursor = mr_cursor_of(text);
    do {
        if (!convert_time_take_part(&cursor, ret)) {
            return false;
        }
    } while (mr_cursor_take(&cursor, ' '));
    return mr_cursor_ended(&cursor);
}

/* Of a month: a twelfth of 365.25 days. */
#define MICROS_A_MONTH (INT64_C(2629800) * MICROS_A_SECOND)

/* In microseconds. */
MR_CONVERT(interval)
{
    struct span span;
    int infinite = infinity_of(text);
    if (infinite != 0) { /* PostgreSQL 17 and later */
        mr_put_long(out, infinite > 0 ? INT64_MAX : INT64_MIN);
        return true;
    }
    if (!parse_span(text, &span)) {
        return false;
    }
    __int128 micros =
        (__int128)span.months * MICROS_A_MONTH + (__int128)span.days * MICROS_A_DAY + span.micros;
    mr_put_long(out, micros > INT64_MAX   ? INT64_MAX
                     : micros < INT64_MIN ? INT64_MIN
                                          : (int64_t)micros);
    return true;
}

/* The fraction of a second without the zeros at its end; nothing for zero. */
static int print_fraction(char *room, int fraction)
{
    int len = fraction == 0 ? 0 : snprintf(room, ISO_MAX, ".%06d", abs(fraction));
    while (len > 0 && room[len - 1] == '0') {
        len--;
    }
    return len;
}

/* As Debezium's Interval.toIsoString, each part with its unit. */
MR_CONVERT(interval_text)
{
    struct span span;
    if (infinity_of(text) != 0) { /* PostgreSQL 17 and later */
        mr_put_slice(out, text);
        return true;
    }
    if (!parse_span(text, &span)) {
        return false;
    }
    int64_t seconds = span.micros / MICROS_A_SECOND;
    int fraction = (int)(span.micros % MICROS_A_SECOND);
    char room[8 * ISO_MAX];
    int len =
        snprintf(room, sizeof(room), "P%lldY%lldM%lldDT%lldH%lldM%s%d",
                 (long long)(span.months / 12), (long long)(span.months % 12), (long long)span.days,
                 (long long)(seconds / 3600), (long long)(seconds / 60 % 60),
                 span.micros < 0 && (seconds % 60 != 0 || fraction != 0) ? "-" : "",
                 abs((int)(seconds % 60)));
    len += print_fraction(room + len, fraction);
    room[len++] = 'S';
    quote(out, room, len);
    return true;
}

/* One part of a duration that is not zero. */
static int convert_time_print_part(char *room, int64_t number, char unit)
{
    return number == 0 ? 0 : snprintf(room, ISO_MAX, "%lld%c", (long long)number, unit);
}

/* ISO 8601, with signs by part, as PostgreSQL itself does with IntervalStyle iso_8601. */
MR_CONVERT(iso_interval)
{
    struct span span;
    if (infinity_of(text) != 0) {
        mr_put_slice(out, text);
        return true;
    }
    if (!parse_span(text, &span)) {
        return false;
    }
    char room[8 * ISO_MAX] = "P";
    int len = 1;
    len += convert_time_print_part(room + len, span.months / 12, 'Y');
    len += convert_time_print_part(room + len, span.months % 12, 'M');
    len += convert_time_print_part(room + len, span.days, 'D');
    if (span.micros != 0 || len == 1) {
        room[len++] = 'T';
        int64_t seconds = span.micros / MICROS_A_SECOND;
        int fraction = (int)(span.micros % MICROS_A_SECOND);
        len += convert_time_print_part(room + len, seconds / 3600, 'H');
        len += convert_time_print_part(room + len, seconds / 60 % 60, 'M');
        if (fraction != 0) {
            len += snprintf(room + len, ISO_MAX, "%s%d", span.micros < 0 ? "-" : "",
                            abs((int)(seconds % 60)));
            len += print_fraction(room + len, fraction);
            room[len++] = 'S';
        } else if (seconds % 60 != 0 || seconds == 0) {
            len += snprintf(room + len, ISO_MAX, "%dS", (int)(seconds % 60));
        }
    }
    quote(out, room, len);
    return true;
}
