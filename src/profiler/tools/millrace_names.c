/* millrace-names FOLDER LIBRARY ARCHIVE...: names for a stripped shared library, from the archives that were built
 * with it.
 *
 * Distributions strip shared libraries and keep the names in static archives, though both are made of the same
 * object files. Each object's code is looked for in the library and counts as found when every function of it
 * has a function of the same size at the same place in the library's unwinding tables, every byte that the linker
 * did not fill in is the same, exported names agree, and there is one such place only. What isn't found that
 * way gets no name. The result, FOLDER/.build-id/ab/cdef.debug, is a symbol table for exactly that build of the
 * library; libdw, gdb and perf find it by build id.
 */
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "profiler/tools/names_file.h"

struct function {
    uint64_t start, size;
    const char *name; /* NULL: not known */
    bool exported;
    bool doubtful; /* two objects claim it */
};

struct library {
    Elf *elf;
    struct function *functions; /* by start */
    size_t count, room;
};

struct object {
    Elf *elf;
    Elf_Data *symbols;
    GElf_Shdr symbols_header;
};

static _Noreturn void die(const char *what, const char *why)
{
    fprintf(stderr, "millrace-names: %s: %s\n", what, why);
    exit(1);
}

/* ---- the library ---- */

static int by_start(const void *a, const void *b)
{
    const struct function *one = a;
    const struct function *other = b;
    return one->start < other->start ? -1 : one->start > other->start;
}

static struct function *function_at(const struct library *library, uint64_t start)
{
    struct function wanted = {.start = start};
    return bsearch(&wanted, library->functions, library->count, sizeof(wanted), by_start);
}

static Elf_Scn *section_named(Elf *elf, const char *name, GElf_Shdr *ret)
{
    size_t names;
    Elf_Scn *section = NULL;
    if (elf_getshdrstrndx(elf, &names) != 0) {
        return NULL;
    }
    while ((section = elf_nextscn(elf, section)) != NULL) {
        gelf_getshdr(section, ret);
        if (strcmp(elf_strptr(elf, names, ret->sh_name), name) == 0) {
            return section;
        }
    }
    return NULL;
}

/* Every entry of .eh_frame whose addresses are relative and have four bytes, as compilers write them. */
static void read_functions(struct library *library, const char *name)
{
    GElf_Shdr header;
    Elf_Scn *section = section_named(library->elf, ".eh_frame", &header);
    Elf_Data *data = section == NULL ? NULL : elf_getdata(section, NULL);
    if (data == NULL) {
        die(name, "it has no .eh_frame");
    }
    const unsigned char *ident = (const unsigned char *)elf_getident(library->elf, NULL);
    Dwarf_Off next;
    Dwarf_CFI_Entry entry;
    for (Dwarf_Off at = 0; dwarf_next_cfi(ident, data, true, at, &next, &entry) == 0; at = next) {
        if (dwarf_cfi_cie_p(&entry)) {
            continue;
        }
        int32_t relative;
        uint32_t size;
        memcpy(&relative, entry.fde.start, sizeof(relative));
        memcpy(&size, entry.fde.start + sizeof(relative), sizeof(size));
        uint64_t here = header.sh_addr + (uint64_t)(entry.fde.start - (const uint8_t *)data->d_buf);
        if (library->count == library->room) {
            library->room = library->room * 2 + 1024;
            library->functions =
                MR_REALLOC(library->functions, library->room * sizeof(struct function));
        }
        library->functions[library->count++] =
            (struct function){.start = here + (uint64_t)(int64_t)relative, .size = size};
    }
    qsort(library->functions, library->count, sizeof(struct function), by_start);
}

static void read_exported(struct library *library)
{
    GElf_Shdr header;
    Elf_Scn *section = section_named(library->elf, ".dynsym", &header);
    Elf_Data *data = section == NULL ? NULL : elf_getdata(section, NULL);
    GElf_Sym symbol;
    for (int i = 0; data != NULL && gelf_getsym(data, i, &symbol) != NULL; i++) {
        struct function *function = function_at(library, symbol.st_value);
        if (GELF_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_shndx != SHN_UNDEF &&
            function != NULL && function->size == symbol.st_size) {
            function->name = elf_strptr(library->elf, header.sh_link, symbol.st_name);
            function->exported = true;
        }
    }
}

/* The library's bytes at an address of its; NULL: not all of them are in one section of code. */
static const uint8_t *bytes_at(const struct library *library, uint64_t address, uint64_t size)
{
    Elf_Scn *section = NULL;
    while ((section = elf_nextscn(library->elf, section)) != NULL) {
        GElf_Shdr header;
        gelf_getshdr(section, &header);
        if ((header.sh_flags & SHF_EXECINSTR) != 0 && address >= header.sh_addr &&
            address - header.sh_addr <= header.sh_size &&
            size <= header.sh_size - (address - header.sh_addr)) {
            Elf_Data *data = elf_getdata(section, NULL);
            return data == NULL ? NULL : (uint8_t *)data->d_buf + (address - header.sh_addr);
        }
    }
    return NULL;
}

/* ---- an object of the archive ---- */

static bool is_function_of(const GElf_Sym *symbol, size_t section)
{
    return GELF_ST_TYPE(symbol->st_info) == STT_FUNC && symbol->st_shndx == section &&
           symbol->st_size > 0;
}

static const char *symbol_name(const struct object *object, const GElf_Sym *symbol)
{
    return elf_strptr(object->elf, object->symbols_header.sh_link, symbol->st_name);
}

/* What the linker fills in, as a mask of bytes that need not be the same. Where it may write a cheaper
 * instruction, that is a few bytes before, too. */
static uint8_t *linked_bytes(struct object *object, size_t section, size_t size)
{
    enum { BEFORE = 3, AFTER = 8 };
    uint8_t *mask = MR_NEW_ARRAY(uint8_t, size);
    Elf_Scn *relocations = NULL;
    while ((relocations = elf_nextscn(object->elf, relocations)) != NULL) {
        GElf_Shdr header;
        gelf_getshdr(relocations, &header);
        Elf_Data *data = elf_getdata(relocations, NULL);
        GElf_Rela relocation;
        for (int i = 0; header.sh_type == SHT_RELA && header.sh_info == section && data != NULL &&
                        gelf_getrela(data, i, &relocation) != NULL;
             i++) {
            bool plain = false;
#if defined(__x86_64__)
            uint64_t type = GELF_R_TYPE(relocation.r_info);
            plain = type == R_X86_64_PC32 || type == R_X86_64_PLT32;
#endif
            uint64_t from =
                relocation.r_offset - (plain || relocation.r_offset < BEFORE ? 0 : BEFORE);
            uint64_t to = relocation.r_offset + (plain ? 4 : AFTER);
            for (uint64_t at = from; at < to && at < size; at++) {
                mask[at] = 1;
            }
        }
    }
    return mask;
}

/* Whether all functions of the object's section have their like in the library when it begins at `base`. */
static bool functions_fit(const struct library *library, struct object *object, size_t section,
                          uint64_t base)
{
    GElf_Sym symbol;
    for (int i = 0; gelf_getsym(object->symbols, i, &symbol) != NULL; i++) {
        if (!is_function_of(&symbol, section)) {
            continue;
        }
        const struct function *function = function_at(library, base + symbol.st_value);
        if (function == NULL || function->size != symbol.st_size) {
            return false;
        }
    }
    return true;
}

/* An exported function of the library must be one of the object there, by the same name. */
static bool exports_fit(const struct library *library, struct object *object, size_t section,
                        uint64_t base, uint64_t size)
{
    for (size_t f = 0; f < library->count; f++) {
        const struct function *function = &library->functions[f];
        if (!function->exported || function->start < base || function->start >= base + size) {
            continue;
        }
        bool same = false;
        GElf_Sym symbol;
        for (int i = 0; !same && gelf_getsym(object->symbols, i, &symbol) != NULL; i++) {
            same = is_function_of(&symbol, section) && base + symbol.st_value == function->start &&
                   strcmp(symbol_name(object, &symbol), function->name) == 0;
        }
        if (!same) {
            return false;
        }
    }
    return true;
}

static bool bytes_fit(const struct library *library, uint64_t base, const Elf_Data *code,
                      const uint8_t *mask)
{
    const uint8_t *there = bytes_at(library, base, code->d_size);
    const uint8_t *here = code->d_buf;
    for (size_t i = 0; there != NULL && i < code->d_size; i++) {
        if (mask[i] == 0 && here[i] != there[i]) {
            return false;
        }
    }
    return there != NULL;
}

static void give_names(struct library *library, struct object *object, size_t section,
                       uint64_t base)
{
    GElf_Sym symbol;
    for (int i = 0; gelf_getsym(object->symbols, i, &symbol) != NULL; i++) {
        if (!is_function_of(&symbol, section)) {
            continue;
        }
        struct function *function = function_at(library, base + symbol.st_value);
        const char *name = symbol_name(object, &symbol);
        if (!function->exported) {
            function->doubtful |= function->name != NULL && strcmp(function->name, name) != 0;
            function->name = name;
        }
    }
}

/* The largest function of a section of code; false: it has none. */
static bool largest_function(struct object *object, size_t section, GElf_Sym *ret)
{
    *ret = (GElf_Sym){0};
    GElf_Sym symbol;
    for (int i = 0; gelf_getsym(object->symbols, i, &symbol) != NULL; i++) {
        if (is_function_of(&symbol, section) && symbol.st_size > ret->st_size) {
            *ret = symbol;
        }
    }
    return ret->st_size > 0;
}

static void place_section(struct library *library, struct object *object, Elf_Scn *section)
{
    size_t index = elf_ndxscn(section);
    Elf_Data *code = elf_getdata(section, NULL);
    GElf_Sym largest = {0};
    if (code == NULL || !largest_function(object, index, &largest)) {
        return;
    }
    uint8_t *mask = linked_bytes(object, index, code->d_size);
    uint64_t found = 0;
    size_t places = 0;
    for (size_t i = 0; i < library->count; i++) {
        uint64_t base = library->functions[i].start - largest.st_value;
        if (library->functions[i].size == largest.st_size &&
            functions_fit(library, object, index, base) &&
            exports_fit(library, object, index, base, code->d_size) &&
            bytes_fit(library, base, code, mask)) {
            found = base;
            places++;
        }
    }
    free(mask);
    if (places == 1) {
        give_names(library, object, index, found);
    }
}

/* The object stays open: the names are in it. */
static void read_object(struct library *library, Elf *elf)
{
    struct object object = {.elf = elf};
    Elf_Scn *section = NULL;
    while (object.symbols == NULL && (section = elf_nextscn(elf, section)) != NULL) {
        gelf_getshdr(section, &object.symbols_header);
        if (object.symbols_header.sh_type == SHT_SYMTAB) {
            object.symbols = elf_getdata(section, NULL);
        }
    }
    section = NULL;
    while (object.symbols != NULL && (section = elf_nextscn(elf, section)) != NULL) {
        GElf_Shdr header;
        gelf_getshdr(section, &header);
        if (header.sh_type == SHT_PROGBITS && (header.sh_flags & SHF_EXECINSTR) != 0) {
            place_section(library, &object, section);
        }
    }
}

static Elf *open_elf(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    Elf *elf = fd < 0 ? NULL : elf_begin(fd, ELF_C_READ_MMAP, NULL);
    if (elf == NULL) {
        die(path, fd < 0 ? strerror(errno) : elf_errmsg(-1));
    }
    return elf;
}

static void read_archive(struct library *library, const char *path)
{
    Elf *archive = open_elf(path);
    Elf *member;
    Elf_Cmd command = ELF_C_READ_MMAP;
    while ((member = elf_begin(-1, command, archive)) != NULL) {
        command = elf_next(member);
        if (elf_kind(member) == ELF_K_ELF) {
            read_object(library, member);
        }
    }
}

/* ---- the result ---- */

static size_t write_names(const struct library *library, const char *folder, const char *path)
{
    struct mr_names_symbol *symbols = MR_NEW_ARRAY(struct mr_names_symbol, library->count + 1);
    size_t count = 0;
    for (size_t i = 0; i < library->count; i++) {
        const struct function *function = &library->functions[i];
        if (function->name != NULL && !function->doubtful) {
            symbols[count++] = (struct mr_names_symbol){
                .start = function->start, .size = function->size, .name = function->name};
        }
    }
    if (!mr_names_write(library->elf, symbols, count, folder)) {
        die(path, "its names can't be written");
    }
    free(symbols);
    return count;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fputs("usage: millrace-names FOLDER LIBRARY ARCHIVE...\n", stderr);
        return 2;
    }
    elf_version(EV_CURRENT);
    struct library library = {.elf = open_elf(argv[2])};
    read_functions(&library, argv[2]);
    read_exported(&library);
    for (int i = 3; i < argc; i++) {
        read_archive(&library, argv[i]);
    }
    size_t named = write_names(&library, argv[1], argv[2]);
    printf("%s: %zu of %zu functions named\n", argv[2], named, library.count);
    free(library.functions);
    return 0;
}
