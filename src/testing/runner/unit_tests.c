/* Runs one of the unit tests' programs: unit-tests NAME. They are listed by
 * src/cmake/AddMillraceTest.cmake. */
#include <stdio.h>
#include <string.h>

#define TEST(name) int mr_main_of_##name(void);
#include "unit_tests.def"
#undef TEST

static const struct {
    const char *name;
    int (*run)(void);
} programs[] = {
#define TEST(name) {#name, mr_main_of_##name},
#include "unit_tests.def"
#undef TEST
};

int main(int argc, char **argv)
{
    const char *name = argc == 2 ? argv[1] : "";
    for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
        if (strcmp(programs[i].name, name) == 0) {
            return programs[i].run();
        }
    }
    fprintf(stderr, "usage: unit-tests NAME; NAME is one of\n");
    for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
        fprintf(stderr, "  %s\n", programs[i].name);
    }
    return 64;
}
