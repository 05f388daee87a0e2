/* A separate debug file that holds a symbol table and nothing else. */
#ifndef MR_TOOLS_NAMES_FILE_H
#define MR_TOOLS_NAMES_FILE_H

#include <libelf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mr_names_symbol {
    uint64_t start, size; /* of the function, as the library's own addresses */
    const char *name;
};

/* Writes FOLDER/.build-id/ab/cdef.debug for the library; its folders are made. False: the library has no build
 * id, or the system says no (errno tells). */
bool mr_names_write(Elf *library, const struct mr_names_symbol *symbols, size_t count,
                    const char *folder);

#endif
