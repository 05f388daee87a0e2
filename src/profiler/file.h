/* Files and folders that profiles are kept in. Any thread. */
#ifndef MR_PROF_FILE_H
#define MR_PROF_FILE_H

#include "base/status.h"

/* Writes a file under another name and moves it: a reader sees all of it or nothing. */
mr_status mr_file_write_whole(const char *folder, const char *name, const void *bytes, size_t len,
                              struct mr_error *ret_error);

/* Whether the folder can be written, or made ("" is fine); makes nothing. */
mr_status mr_file_check_folder(const char *folder, const char *option, struct mr_error *ret_error);

/* Makes the folder if it is missing. MR_ERR_CONFIG: it can't be made or written; `option` is what names it. */
mr_status mr_file_make_folder(const char *folder, const char *option, struct mr_error *ret_error);

#endif
