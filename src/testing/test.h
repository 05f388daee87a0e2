/* cmocka with what it needs before it. */
#ifndef MR_TESTING_TEST_H
#define MR_TESTING_TEST_H

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#endif
