/* Files of profiles in a folder to which others may write. */
#include "profiler/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "testing/test.h"

static const char whole[] = "the whole profile";
static const char secret[] = "somebody's file";

static struct {
    char folder[40];
    char target[64]; /* a file elsewhere, to which links lead */
    bool link_comes_back;
} fixture;

static const char *files_test_path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof(path), "%s/%s", fixture.folder, name);
    return path;
}

/* Takes the place of libc's. A quick attacker puts the link there again, between unlink and
 * open. */
int unlink(const char *path)
{
    int removed = unlinkat(AT_FDCWD, path, 0);
    if (fixture.link_comes_back && strstr(path, ".part") != NULL) {
        int made = symlink(fixture.target, path);
        MR_ASSERT(made == 0 || errno == EEXIST);
    }
    return removed;
}

static void files_test_write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void assert_text(const char *path, const char *text)
{
    char found[64] = "";
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    found[fread(found, 1, sizeof(found) - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(found, text);
}

static int files_test_set_up(void **state)
{
    (void)state;
    strcpy(fixture.folder, "/tmp/profile_file-XXXXXX");
    assert_non_null(mkdtemp(fixture.folder));
    snprintf(fixture.target, sizeof(fixture.target), "%s/target", fixture.folder);
    fixture.link_comes_back = false;
    files_test_write_text(fixture.target, secret);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    static const char *const names[] = {"target", "a.pb.gz", ".a.pb.gz.part"};
    fixture.link_comes_back = false;
    for (size_t i = 0; i < MR_ARRAY_LEN(names); i++) {
        unlink(files_test_path_of(names[i]));
    }
    return rmdir(fixture.folder);
}

static mr_status files_test_write_whole(struct mr_error *ret_error)
{
    return mr_file_write_whole(fixture.folder, "a.pb.gz", whole, sizeof(whole) - 1, ret_error);
}

static void test_file_write_whole_replaces_what_a_killed_one_left(void **state)
{
    (void)state;
    files_test_write_text(files_test_path_of(".a.pb.gz.part"), "half");
    assert_int_equal(files_test_write_whole(NULL), MR_OK);
    assert_text(files_test_path_of("a.pb.gz"), whole);
    assert_int_equal(access(files_test_path_of(".a.pb.gz.part"), F_OK), -1);
    struct stat about;
    assert_int_equal(stat(files_test_path_of("a.pb.gz"), &about), 0);
    assert_int_equal(about.st_mode & 0007, 0);
}

static void test_file_write_whole_removes_a_link(void **state)
{
    (void)state;
    assert_int_equal(symlink(fixture.target, files_test_path_of(".a.pb.gz.part")), 0);
    assert_int_equal(files_test_write_whole(NULL), MR_OK);
    assert_text(files_test_path_of("a.pb.gz"), whole);
    assert_text(fixture.target, secret);
}

static void test_file_write_whole_follows_no_link_that_comes_back(void **state)
{
    (void)state;
    struct mr_error error = {0};
    fixture.link_comes_back = true;
    assert_int_equal(files_test_write_whole(&error), MR_ERR_SYSTEM);
    assert_non_null(strstr(error.text, "File exists"));
    assert_text(fixture.target, secret);
    assert_int_equal(access(files_test_path_of("a.pb.gz"), F_OK), -1);
    /* Nor to where there is no file yet: that is made by nobody. */
    assert_int_equal(unlinkat(AT_FDCWD, fixture.target, 0), 0);
    assert_int_equal(files_test_write_whole(&error), MR_ERR_SYSTEM);
    assert_int_equal(access(fixture.target, F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_file_write_whole_replaces_what_a_killed_one_left,
                                        files_test_set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_file_write_whole_removes_a_link, files_test_set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_file_write_whole_follows_no_link_that_comes_back,
                                        files_test_set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
