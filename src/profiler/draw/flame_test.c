#include "profiler/draw/flame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testing/test.h"

static struct mr_flame *flame_test_flame_of(const char *before, const char *after)
{
    struct mr_flame *flame = mr_flame_new();
    assert_int_equal(mr_flame_add_folded(flame, MR_FLAME_BEFORE, before, strlen(before)), 0);
    if (after != NULL) {
        assert_int_equal(mr_flame_add_folded(flame, MR_FLAME_AFTER, after, strlen(after)), 0);
    }
    return flame;
}

static void test_folded_round_trip_merges_and_sorts(void **state)
{
    (void)state;
    struct mr_flame *flame = flame_test_flame_of("t;b 2\nt;a;c 3\n\nt;b 4\r\nt 1", NULL);
    assert_int_equal(mr_flame_total(flame, MR_FLAME_BEFORE), 10);
    char *folded = mr_flame_folded(flame, MR_FLAME_BEFORE, NULL);
    assert_string_equal(folded, "t 1\nt;a;c 3\nt;b 6\n");
    free(folded);
    mr_flame_free(flame);
}

static void test_folded_counts_wrong_lines(void **state)
{
    (void)state;
    const char *text = "a;b\na;b x\n 5x\na 9999999999999999999999\nfine one 3\n";
    struct mr_flame *flame = mr_flame_new();
    assert_int_equal(mr_flame_add_folded(flame, MR_FLAME_BEFORE, text, strlen(text)), 4);
    char *folded = mr_flame_folded(flame, MR_FLAME_BEFORE, NULL);
    assert_string_equal(folded, "fine one 3\n");
    free(folded);
    mr_flame_free(flame);
}

static void test_names_cannot_break_folded_text(void **state)
{
    (void)state;
    struct mr_flame *flame = mr_flame_new();
    mr_flame_add(flame, MR_FLAME_BEFORE, (mr_slice[]){MR_SLICE("a;b"), MR_SLICE("c\nd 5")}, 2, 7);
    char *folded = mr_flame_folded(flame, MR_FLAME_BEFORE, NULL);
    assert_string_equal(folded, "a:b;c d 5 7\n");
    free(folded);
    mr_flame_free(flame);
}

static void test_depth_and_names_are_bounded(void **state)
{
    (void)state;
    enum { DEPTH = 5000 };
    static mr_slice names[DEPTH];
    static uint8_t huge[100000];
    memset(huge, 'x', sizeof(huge));
    for (int i = 0; i < DEPTH; i++) {
        names[i] = (mr_slice){.data = huge, .len = sizeof(huge)};
    }
    struct mr_flame *flame = mr_flame_new();
    mr_flame_add(flame, MR_FLAME_BEFORE, names, DEPTH, 11);
    mr_flame_add(flame, MR_FLAME_BEFORE, names, 0, 2);
    assert_int_equal(mr_flame_total(flame, MR_FLAME_BEFORE), 13);
    size_t len;
    char *folded = mr_flame_folded(flame, MR_FLAME_BEFORE, &len);
    assert_in_range(len, 1, (MR_FLAME_NAME_MAX + 1) * MR_FLAME_DEPTH_MAX + 10);
    free(folded);
    char *svg = mr_flame_svg(flame, &(struct mr_flame_drawing){0}, &len);
    assert_int_equal(len, strlen(svg));
    free(svg);
    mr_flame_free(flame);
}

static char *svg_of(const struct mr_flame *flame, struct mr_flame_drawing drawing)
{
    return mr_flame_svg(flame, &drawing, NULL);
}

static void flame_test_assert_has(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("\"%s\" is missing in:\n%s", part, text);
    }
}

static void assert_has_not(const char *text, const char *part)
{
    if (strstr(text, part) != NULL) {
        fail_msg("\"%s\" is in:\n%s", part, text);
    }
}

static void test_svg_escapes_everything_from_outside(void **state)
{
    (void)state;
    struct mr_flame *flame = flame_test_flame_of(
        "<script>alert(1)</script>;\"x\" onload='y'&]]> \x01\xff\xef\xbf\xbe 5", NULL);
    char *svg = svg_of(
        flame, (struct mr_flame_drawing){
                   .title = "</title><a&\"'", .subtitle = "<b>", .unit = "<u>", .search = "\"<q>"});
    assert_has_not(svg, "<script>alert");
    flame_test_assert_has(svg, "&lt;script&gt;alert(1)&lt;/script&gt;");
    flame_test_assert_has(
        svg, "&quot;x&quot; onload=&#39;y&#39;&amp;]]&gt; \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    flame_test_assert_has(svg, "&lt;/title&gt;&lt;a&amp;&quot;&#39;");
    flame_test_assert_has(svg, "&lt;b&gt;");
    flame_test_assert_has(svg, "&lt;u&gt;");
    flame_test_assert_has(svg, "data-search=\"&quot;&lt;q&gt;\"");
    assert_has_not(svg, "\x01");
    free(svg);
    mr_flame_free(flame);
}

static void test_svg_frames_widths_and_tooltips(void **state)
{
    (void)state;
    struct mr_flame *flame =
        flame_test_flame_of("mr-source;mr_encode_change 30\nmr-source;PQgetCopyData "
                            "[libpq.so.5] 69\nmr-source;tiny 1\n",
                            NULL);
    char *svg = svg_of(flame, (struct mr_flame_drawing){.width = 1020, .min_width = 12});
    flame_test_assert_has(svg, "width=\"1020\"");
    flame_test_assert_has(
        svg, "data-b=\"0\" data-n=\"69\" data-d=\"2\" data-f=\"PQgetCopyData [libpq.so.5]\"");
    flame_test_assert_has(
        svg, "<title>mr_encode_change (30 samples, 30.00 %, itself 30.00 %; stage encode)");
    flame_test_assert_has(svg, "x=\"700.00\" y=\"58\" width=\"300.00\"");
    assert_has_not(svg, "tiny"); /* 10 pixels */
    flame_test_assert_has(svg, "encode 30.0 %");
    flame_test_assert_has(svg, "receive 70.0 %");
    free(svg);
    svg = svg_of(flame, (struct mr_flame_drawing){.inverted = true, .width = 1});
    flame_test_assert_has(svg, "width=\"300\"");
    flame_test_assert_has(svg, "y=\"90\""); /* the deepest row, below the root's and the thread's */
    free(svg);
    mr_flame_free(flame);
}

static void test_svg_of_nothing_is_a_picture(void **state)
{
    (void)state;
    struct mr_flame *flame = mr_flame_new();
    char *svg = svg_of(flame, (struct mr_flame_drawing){0});
    flame_test_assert_has(svg, "no samples");
    flame_test_assert_has(svg, "@media(prefers-color-scheme:dark){#ground{fill:#182028}");
    flame_test_assert_has(svg, "<rect id=\"ground\"");
    flame_test_assert_has(svg, "</svg>");
    free(svg);
    mr_flame_free(flame);
}

static void test_difference_is_of_shares(void **state)
{
    (void)state;
    /* Twice the samples and the same shares but for 20 points. */
    struct mr_flame *flame = flame_test_flame_of("t;same 50\nt;less 30\nt;more 20\n",
                                                 "t;same 100\nt;less 20\nt;more 80\n");
    char *svg = svg_of(
        flame, (struct mr_flame_drawing){.colour = MR_FLAME_BY_CHANGE, .side = MR_FLAME_AFTER});
    flame_test_assert_has(
        svg, "change +20.00 points)</title><rect x=\"128.00\" y=\"58\" width=\"472.00\" "
             "height=\"15\" fill=\"rgb(255,130,130)\"");
    flame_test_assert_has(svg, "change -20.00 points");
    flame_test_assert_has(svg, "fill=\"rgb(130,130,255)\"");
    flame_test_assert_has(svg, "change +0.00 points");
    flame_test_assert_has(svg, "rgb(240,240,240)");
    free(svg);
    mr_flame_free(flame);
}

static void test_difference_is_of_rows_where_they_are_known(void **state)
{
    (void)state;
    /* Twice the samples for twice the rows: the same, and 5 of 10 more a row of one function.
     * Shares would move the other. */
    struct mr_flame *flame =
        flame_test_flame_of("t;same 50\nt;more 50\n", "t;same 100\nt;more 200\n");
    struct mr_flame_drawing drawing = {
        .colour = MR_FLAME_BY_CHANGE, .side = MR_FLAME_AFTER, .rows = {1000, 2000}};
    char *svg = svg_of(flame, drawing);
    flame_test_assert_has(
        svg, "same (100 samples, 33.33 %, itself 33.33 %; 50.00, before 50.00 in 1000 rows, "
             "+0.00 % of all before)");
    flame_test_assert_has(svg, "100.00, before 50.00 in 1000 rows, +50.00 % of all before)");
    flame_test_assert_has(svg, "of a row; full colour");
    free(svg);
    mr_flame_free(flame);
}

/* Each ends before the next begins, and within the picture. */
static void test_labels_of_the_legend_do_not_overlap(void **state)
{
    (void)state;
    struct mr_flame *flame =
        flame_test_flame_of("mr-http;x 1\nmr-profiler;x 1\nx;[acknowledge] 98\n", NULL);
    for (unsigned width = 300; width <= 2100; width += 300) {
        char *svg = svg_of(flame, (struct mr_flame_drawing){.width = width});
        unsigned labels = 0, line = 0, end = 0;
        for (const char *at = svg; (at = strstr(at, "<rect x=")) != NULL; at++) {
            unsigned x, y, text;
            char label[40];
            if (sscanf(at,
                       "<rect x=\"%u\" y=\"%u\" width=\"11\" height=\"11\" fill=\"%*[^\"]\"/>"
                       "<text x=\"%u\" y=\"%*u\">%39[^<]",
                       &x, &y, &text, label) == 4) {
                assert_true(x >= (y == line ? end : 0) && text >= x + 11);
                end = text + (unsigned)strlen(label) * 8;
                line = y;
                labels++;
                assert_true(end <= width);
            }
        }
        assert_int_equal(labels, MR_STAGES - 1);
        free(svg);
    }
    mr_flame_free(flame);
}

static void test_what_a_compiler_adds_to_names_is_left_out(void **state)
{
    (void)state;
    struct mr_flame *flame = flame_test_flame_of(
        "mr-sink;kafka_poll.constprop.0;kafka_send_produce.isra.0 "
        "1\nmr-sink;kafka_poll;kafka_send_produce 2\n"
        "mr-sink;kafka_poll.part.1.isra.0.cold;kafka_send_produce.lto_priv.12 [millrace] 4\n"
        "t;a.b.1;.cold;1.5;f.cold.2 [x.so] 8\n",
        NULL);
    char *folded = mr_flame_folded(flame, MR_FLAME_BEFORE, NULL);
    assert_string_equal(folded, "mr-sink;kafka_poll;kafka_send_produce 3\n"
                                "mr-sink;kafka_poll;kafka_send_produce [millrace] 4\n"
                                "t;a.b.1;.cold;1.5;f [x.so] 8\n");
    free(folded);
    uint64_t values[MR_STAGES];
    mr_flame_stages(flame, MR_FLAME_BEFORE, values);
    assert_int_equal(values[MR_STAGE_PRODUCE], 7);
    mr_flame_free(flame);
    assert_int_equal(mr_flame_stage_of(MR_SLICE("kafka_send_produce.isra.0"), MR_STAGE_NONE),
                     MR_STAGE_PRODUCE);
}

static void test_stage_is_the_deepest_that_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *stack;
        enum mr_stage stage;
    } cases[] = {
        {"mr-source;start_thread;mr_intake_main", MR_STAGE_RECEIVE},
        {"mr-monitor;start_thread;poll", MR_STAGE_OTHER},
        {"mr-http-slow;start_thread;MHD_run", MR_STAGE_HTTP},
        {"mr-source;mr_intake_main;mr_pg_receive;PQgetCopyData [libpq.so.5.15];recv",
         MR_STAGE_RECEIVE},
        {"mr-source;mr_pgoutput_decode", MR_STAGE_DECODE},
        {"mr-source;mr_pgoutput_decode;on_change;mr_encode_change;memcpy [libc.so.6]",
         MR_STAGE_ENCODE},
        {"mr-source;mr_encode_change;malloc [libjemalloc.so.2]", MR_STAGE_MALLOC},
        {"mr-sink;kafka_poll;rd_free;[libjemalloc.so.2]", MR_STAGE_MALLOC},
        {"mr-sink;kafka_poll;rd_free;jemalloc [libjemalloc.so.2]", MR_STAGE_MALLOC},
        {"mr-sink;mr_kafka_send;rd_kafka_produceva [librdkafka.so.1]", MR_STAGE_PRODUCE},
        {"mr-sink;kafka_poll;mr_kafka_take_events;report_of", MR_STAGE_ACKNOWLEDGE},
        /* What waited for room or for an answer is handed over when the sink is polled. */
        {"mr-sink;kafka_poll;kafka_send_hand_over;kafka_send_produce;rd_kafka_produceva "
         "[librdkafka.so.1]",
         MR_STAGE_PRODUCE},
        {"mr-sink;kafka_poll;kafka_send_hand_over;kafka_send_produce", MR_STAGE_PRODUCE},
        {"mr-sink;kafka_poll;hand_over;rd_kafka_header_add;rd_list_add", MR_STAGE_PRODUCE},
        {"mr-sink;kafka_poll;kafka_send_hand_over;kafka_send_produce;mr_kafka_take_events",
         MR_STAGE_ACKNOWLEDGE},
        {"mr-sink;kafka_poll;mr_kafka_take_events;rd_kafka_msg_destroy;rd_kafka_headers_destroy",
         MR_STAGE_ACKNOWLEDGE},
        {"rdk:broker1;start_thread;[librdkafka.so.1];writev", MR_STAGE_FLUSH},
        {"x;[encode];y", MR_STAGE_ENCODE},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        char line[200];
        snprintf(line, sizeof(line), "%s 3", cases[i].stack);
        struct mr_flame *flame = flame_test_flame_of(line, NULL);
        uint64_t values[MR_STAGES];
        mr_flame_stages(flame, MR_FLAME_BEFORE, values);
        if (values[cases[i].stage] != 3) {
            fail_msg("%s is not %s", cases[i].stack, mr_stage_name(cases[i].stage));
        }
        mr_flame_free(flame);
    }
}

static void test_large_graph_stays_small(void **state)
{
    (void)state;
    struct mr_flame *flame = mr_flame_new();
    for (int i = 0; i < 10000; i++) {
        char line[200];
        int len = snprintf(line, sizeof(line), "t%d;outer_function_%d;f%d;g%d;h%d 1", i % 3, i % 7,
                           i % 100, i % 1000, i);
        assert_int_equal(mr_flame_add_folded(flame, MR_FLAME_BEFORE, line, (size_t)len), 0);
    }
    size_t len;
    char *svg = mr_flame_svg(flame, &(struct mr_flame_drawing){0}, &len);
    assert_in_range(len, 10000, 2000000);
    free(svg);
    mr_flame_free(flame);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folded_round_trip_merges_and_sorts),
        cmocka_unit_test(test_folded_counts_wrong_lines),
        cmocka_unit_test(test_names_cannot_break_folded_text),
        cmocka_unit_test(test_depth_and_names_are_bounded),
        cmocka_unit_test(test_svg_escapes_everything_from_outside),
        cmocka_unit_test(test_svg_frames_widths_and_tooltips),
        cmocka_unit_test(test_svg_of_nothing_is_a_picture),
        cmocka_unit_test(test_difference_is_of_shares),
        cmocka_unit_test(test_difference_is_of_rows_where_they_are_known),
        cmocka_unit_test(test_labels_of_the_legend_do_not_overlap),
        cmocka_unit_test(test_what_a_compiler_adds_to_names_is_left_out),
        cmocka_unit_test(test_stage_is_the_deepest_that_is_named),
        cmocka_unit_test(test_large_graph_stays_small),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
