#include "profiler/tools/names_file.h"

#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <elfutils/libdwelf.h>

#include "base/base.h"

/* The sections of the file, in this order; their names' places in SECTION_NAMES. */
enum { NOTE = 1, TEXT, SYMTAB, STRTAB, SHSTRTAB };
static const char section_names[] = "\0.note.gnu.build-id\0.text\0.symtab\0.strtab\0.shstrtab";
static const uint32_t name_at[] = {
    [NOTE] = 1, [TEXT] = 20, [SYMTAB] = 26, [STRTAB] = 34, [SHSTRTAB] = 42};

static void add_section(Elf *to, size_t index, GElf_Shdr header, Elf_Data content)
{
    Elf_Scn *section = elf_newscn(to);
    MR_ASSERT(section != NULL && elf_ndxscn(section) == index);
    Elf_Data *data = elf_newdata(section);
    MR_ASSERT(data != NULL);
    content.d_version = EV_CURRENT;
    *data = content;
    header.sh_name = name_at[index];
    header.sh_addralign = content.d_align;
    gelf_update_shdr(section, &header);
}

static Elf_Scn *find(Elf *library, const char *wanted, GElf_Shdr *ret)
{
    size_t strings;
    Elf_Scn *section = NULL;
    if (elf_getshdrstrndx(library, &strings) != 0) {
        return NULL;
    }
    do {
        section = elf_nextscn(library, section);
    } while (section != NULL && (gelf_getshdr(section, ret) == NULL ||
                                 strcmp(elf_strptr(library, strings, ret->sh_name), wanted) != 0));
    return section;
}

/* Where the library lies in memory, and what it is: a reader compares both. */
static bool copy_headers(Elf *library, Elf *to)
{
    GElf_Ehdr header;
    size_t count;
    if (gelf_getehdr(library, &header) == NULL || elf_getphdrnum(library, &count) != 0 ||
        gelf_newehdr(to, gelf_getclass(library)) == NULL || gelf_newphdr(to, count) == NULL) {
        return false;
    }
    header.e_shstrndx = SHSTRTAB;
    header.e_shoff = header.e_phoff = 0;
    header.e_shnum = 0;
    gelf_update_ehdr(to, &header);
    for (size_t i = 0; i < count; i++) {
        GElf_Phdr segment;
        gelf_getphdr(library, (int)i, &segment);
        gelf_update_phdr(to, (int)i, &segment);
    }
    return true;
}

static bool copy_sections(Elf *library, Elf *to)
{
    GElf_Shdr header;
    Elf_Scn *note = find(library, ".note.gnu.build-id", &header);
    Elf_Data *content = note == NULL ? NULL : elf_getdata(note, NULL);
    if (content == NULL) {
        return false;
    }
    add_section(to, NOTE, header,
                (Elf_Data){.d_buf = content->d_buf,
                           .d_type = content->d_type,
                           .d_size = content->d_size,
                           .d_align = 4});
    if (find(library, ".text", &header) == NULL) {
        return false;
    }
    header.sh_type = SHT_NOBITS;
    add_section(to, TEXT, header,
                (Elf_Data){.d_type = ELF_T_BYTE, .d_size = header.sh_size, .d_align = 16});
    return true;
}

/* The texts' memory must live until the file is written. */
static void add_symbols(Elf *to, const struct mr_names_symbol *symbols, size_t count,
                        Elf64_Sym *table, char *texts)
{
    size_t at = 1; /* the first text is empty */
    for (size_t i = 0; i < count; i++) {
        size_t len = strlen(symbols[i].name) + 1;
        table[i + 1] = (Elf64_Sym){
            .st_name = (uint32_t)at,
            .st_info = ELF64_ST_INFO(STB_LOCAL, STT_FUNC),
            .st_shndx = TEXT,
            .st_value = symbols[i].start,
            .st_size = symbols[i].size,
        };
        memcpy(texts + at, symbols[i].name, len);
        at += len;
    }
    add_section(to, SYMTAB,
                (GElf_Shdr){.sh_type = SHT_SYMTAB,
                            .sh_link = STRTAB,
                            .sh_info = (uint32_t)count + 1,
                            .sh_entsize = sizeof(Elf64_Sym)},
                (Elf_Data){.d_buf = table,
                           .d_type = ELF_T_SYM,
                           .d_size = (count + 1) * sizeof(Elf64_Sym),
                           .d_align = 8});
    add_section(to, STRTAB, (GElf_Shdr){.sh_type = SHT_STRTAB},
                (Elf_Data){.d_buf = texts, .d_type = ELF_T_BYTE, .d_size = at, .d_align = 1});
    add_section(to, SHSTRTAB, (GElf_Shdr){.sh_type = SHT_STRTAB},
                (Elf_Data){.d_buf = (void *)(uintptr_t)section_names,
                           .d_type = ELF_T_BYTE,
                           .d_size = sizeof(section_names),
                           .d_align = 1});
}

static size_t texts_size(const struct mr_names_symbol *symbols, size_t count)
{
    size_t size = 1;
    for (size_t i = 0; i < count; i++) {
        size += strlen(symbols[i].name) + 1;
    }
    return size;
}

static bool write_elf(Elf *library, const struct mr_names_symbol *symbols, size_t count, int fd)
{
    Elf *to = elf_begin(fd, ELF_C_WRITE, NULL);
    if (to == NULL) {
        return false;
    }
    Elf64_Sym *table = MR_NEW_ARRAY(Elf64_Sym, count + 1);
    char *texts = MR_NEW_ARRAY(char, texts_size(symbols, count));
    bool good = copy_headers(library, to) && copy_sections(library, to);
    if (good) {
        add_symbols(to, symbols, count, table, texts);
        good = elf_update(to, ELF_C_WRITE) >= 0;
    }
    elf_end(to);
    free(texts);
    free(table);
    return good;
}

/* FOLDER/.build-id/ab/cdef.debug; its folders are made. */
static bool name_file(Elf *library, const char *folder, char *to, size_t size)
{
    const void *bits;
    ssize_t len = dwelf_elf_gnu_build_id(library, &bits);
    if (len < 2 || len > 64) {
        return false;
    }
    const uint8_t *bytes = bits;
    int at = snprintf(to, size, "%s", folder);
    mkdir(to, 0777);
    at += snprintf(to + at, size - (size_t)at, "/.build-id");
    mkdir(to, 0777);
    at += snprintf(to + at, size - (size_t)at, "/%02x", bytes[0]);
    mkdir(to, 0777);
    at += snprintf(to + at, size - (size_t)at, "/");
    for (ssize_t i = 1; i < len; i++) {
        at += snprintf(to + at, size - (size_t)at, "%02x", bytes[i]);
    }
    snprintf(to + at, size - (size_t)at, ".debug");
    return true;
}

bool mr_names_write(Elf *library, const struct mr_names_symbol *symbols, size_t count,
                    const char *folder)
{
    enum { REST_MAX = 256 };
    size_t size = strlen(folder) + REST_MAX;
    char *path = MR_NEW_ARRAY(char, size);
    bool good = false;
    if (name_file(library, folder, path, size)) {
        int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        good = fd >= 0 && write_elf(library, symbols, count, fd);
        good = fd >= 0 && close(fd) == 0 && good;
    }
    free(path);
    return good;
}
