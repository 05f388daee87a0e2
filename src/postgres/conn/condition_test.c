#include "postgres/conn/condition.h"

#include <stdlib.h>

#include "testing/test.h"

static void test_fault_none(void **state)
{
    (void)state;
    static const char *const good[] = {
        "",
        "id > 5",
        "(a = 1 OR b = 2) AND c[1] = 3",
        "a[f(1)] = ')' AND b <> '('",
        "id IN (SELECT order_id FROM public.items WHERE n > 1)",
        "name = 'O''Brien)'",
        "name = E'it\\'s)' AND true",
        "name ~ '\\)' AND name ~ '\\'",
        "\"a)\"\"(\" = 1",
        "U&\"d\\0061)\" = U&'\\0029)'",
        "a = $$)'$$ AND b = $t$ ) $$ $u$ $t$",
        "a$b$ = 1",
        "1=1 --",
        "1=1 -- )",
        "1=1 -- )\n AND 2=2",
        "1=1 --)\r AND (2=2)",
        "true /* ) /* ( */ ) */",
        "a*/* ) */b > 1",
        "a @> '{1}'::int[] AND b->>'x' = '1' AND c - -1 > 2",
        "a > 1.5e10 AND b < 0x1F AND c = .5",
        "price > 10 AND \xc3\xa9t\xc3\xa9 = '\xc3\xa9'",
        "B'10' = b AND X'1F' = x AND N'a' = n",
        "e = 'a' AND E = '\\'",
        "fooE = '\\' AND true",
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(good); i++) {
        const char *fault = mr_sql_condition_fault(good[i]);
        if (fault != NULL) {
            fail_msg("%s: %s", good[i], fault);
        }
    }
    assert_null(mr_sql_condition_fault(NULL));
}

static void test_fault_each(void **state)
{
    (void)state;
    static const struct {
        const char *condition, *fault;
    } bad[] = {
        {"false) UNION ALL SELECT 1000+id,'x',v FROM public.payroll WHERE (true", "has not opened"},
        {"true) OR (1=1", "has not opened"},
        {"true) GROUP BY (id", "has not opened"},
        {"true) FOR UPDATE --", "has not opened"},
        {"true) TO STDOUT; CREATE TABLE pwned(a int); COPY (SELECT 1", "has not opened"},
        {"a = '\\') UNION SELECT (1' --", "has not opened"}, /* a backslash is one */
        {"e = '\\') OR ('", "has not opened"},
        {"a = E'\\\\') OR ('", "has not opened"},
        {"a = 'x'E'\\'') UNION ('", "has not opened"},
        {"fooE'\\') OR ('", "has not opened"},
        {"a$$) OR ($$", "has not opened"},
        {"$t$ $tt$ $t$) OR (1=1", "has not opened"},
        {"/* /* */ ) OR (1=1", "without an end"},
        {"1=1 --\n) OR (1=1", "has not opened"},
        {"1=1 --\r) OR (1=1", "has not opened"},
        {"a[1)", "has not opened"},
        {"([)]", "has not opened"},
        {"(1=1", "does not close"},
        {"(1=1 --)", "does not close"},
        {"a[1", "does not close"},
        {"1=1 /*", "without an end"},
        {"a = 'x", "without an end"},
        {"a = E'x\\'", "without an end"},
        {"a = E'x\\", "without an end"},
        {"\"a = 1", "without an end"},
        {"a = $$x", "without an end"},
        {"a = $x$x$y$", "without an end"},
        {"a = $1", "begins no text"},
        {"a = $", "begins no text"},
        {"a = $a-b$ $a-b$", "begins no text"},
        {"1=1; COMMIT", "semicolon"},
        {"(1=1; COMMIT)", "semicolon"},
        {"\\gexec", "backslash"},
        {" \n\t", "empty"},
        {"-- id > 5", "empty"},
        {"/* id > 5 */", "empty"},
        /* Where the server's versions, or texts in pieces, would decide what is text. */
        {"a = E'x' \n '\\'') OR ('", "in several pieces"},
        {"a = E'x' -- y\n '\\'') OR ('", "in several pieces"},
        {"1E'\\') OR (1=1 --'", "behind a number"},
        {"0x1F$$) OR ($$", "behind a number"},
        {"1$$) OR ($$", "behind a number"},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(bad); i++) {
        const char *fault = mr_sql_condition_fault(bad[i].condition);
        if (fault == NULL || strstr(fault, bad[i].fault) == NULL) {
            fail_msg("%s: %s", bad[i].condition, fault == NULL ? "taken" : fault);
        }
    }
}

static void test_fault_depth(void **state)
{
    (void)state;
    char nested[2 * 257 + 2];
    for (size_t depth = 256; depth <= 257; depth++) {
        memset(nested, '(', depth);
        nested[depth] = 'a';
        memset(nested + depth + 1, ')', depth);
        nested[2 * depth + 1] = '\0';
        assert_true((mr_sql_condition_fault(nested) == NULL) == (depth == 256));
    }
}

/* Texts, names and comments hide what is in them, whatever they stand beside: what is taken is what
 * balances without them. */
static void test_fault_random(void **state)
{
    (void)state;
    static const char *const pieces[] = {"(",           ")",
                                         "(",           ")",
                                         "x",           "'a)'",
                                         "'\\'",        "E'\\')\\\\'",
                                         "e'('' '",     "\"a)\"\"\"",
                                         "$$ ( ' $$",   "$t$ $$ ) $tt$ $t$",
                                         "a$$",         "/* ( /* ) */ ' */",
                                         "-- ) '\n",    "-- ( \"\r",
                                         "'--)'",       "1.5e3",
                                         "U&'\\0029)'", "fooE",
                                         "[1]",         "'/*('"};
    uint32_t taken = 0, seed = 1;
    for (uint32_t round = 0; round < 200000; round++) {
        MR_TEXT(text);
        int depth = 0, lowest = 0;
        for (uint32_t count = 2 + round % 9; count > 0; count--) {
            seed = seed * 1664525 + 1013904223;
            const char *piece = pieces[(seed >> 16) % MR_ARRAY_LEN(pieces)];
            mr_text_string(&text, piece);
            mr_text_string(&text, "=");
            depth += piece[0] == '(' ? 1 : piece[0] == ')' ? -1 : 0;
            lowest = depth < lowest ? depth : lowest;
        }
        bool is_good = depth == 0 && lowest == 0;
        if ((mr_sql_condition_fault(text.data) == NULL) != is_good) {
            fail_msg("%s is %s", text.data, is_good ? "refused" : "taken");
        }
        taken += is_good;
    }
    assert_true(taken > 1000);
}

static void test_add(void **state)
{
    (void)state;
    MR_TEXT(sql);
    mr_sql_add_condition(&sql, "id > 5 -- all");
    assert_string_equal(sql.data, "(id > 5 -- all\n)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fault_none),  cmocka_unit_test(test_fault_each),
        cmocka_unit_test(test_fault_depth), cmocka_unit_test(test_fault_random),
        cmocka_unit_test(test_add),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
