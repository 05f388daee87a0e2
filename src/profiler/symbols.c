#include "profiler/symbols.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>

#include "base/hash.h"
#include "base/index.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void mr_symbols_lock(void)
{
    pthread_mutex_lock(&lock);
}

void mr_symbols_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

/* Text 0 is "", which is not in here. */
static struct {
    char **texts; /* texts[0] is text 1 */
    uint32_t room;
    struct mr_index index;
} interned;

uint32_t mr_symbols_intern(const char *text)
{
    if (text == NULL || text[0] == '\0') {
        return 0;
    }
    uint64_t hash = mr_hash_add(MR_HASH_BEGIN, text, strlen(text));
    uint32_t number;
    MR_INDEX_FIND(number, &interned.index, hash, strcmp(interned.texts[number], text) == 0);
    if (number == MR_INDEX_NONE) {
        number = mr_index_add(&interned.index, hash);
        MR_GROW(interned.texts, interned.room, interned.index.count);
        interned.texts[number] = MR_STRDUP(text);
    }
    return number + 1;
}

const char *mr_symbols_text(uint32_t id)
{
    return id == 0 ? "" : interned.texts[id - 1];
}

static struct {
    struct mr_location *items; /* items[0] is location 1 */
    uint32_t room;
    uint32_t named; /* so many, from the first on, have their names */
    struct mr_index by_address;
} locations;

static struct {
    struct mr_mapping *items;
    uint32_t count, room;
} mappings;

uint32_t mr_symbols_location(uint64_t address, bool is_return)
{
    address -= is_return;
    uint32_t number;
    MR_INDEX_FIND(number, &locations.by_address, address,
                  locations.items[number].address == address);
    if (number == MR_INDEX_NONE) {
        number = mr_index_add(&locations.by_address, address);
        MR_GROW(locations.items, locations.room, locations.by_address.count);
        locations.items[number] = (struct mr_location){.address = address};
    }
    return number + 1;
}

static uint32_t intern_build_id(Dwfl_Module *module)
{
    const unsigned char *bits;
    GElf_Addr address;
    int len = dwfl_module_build_id(module, &bits, &address);
    char text[2 * 64 + 1] = "";
    for (int i = 0; i < len && i < 64; i++) {
        snprintf(text + (size_t)i * 2, 3, "%02x", bits[i]);
    }
    return mr_symbols_intern(text);
}

/* As the kernel mapped it: pprof takes the first executable segment for what a mapping is of. */
static void find_code(Dwfl_Module *module, struct mr_mapping *mapping)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    Dwarf_Addr bias;
    Elf *elf = dwfl_module_getelf(module, &bias);
    size_t count = 0;
    mapping->code_start = mapping->start;
    mapping->code_end = mapping->end;
    if (elf == NULL || elf_getphdrnum(elf, &count) != 0) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        GElf_Phdr segment;
        if (gelf_getphdr(elf, (int)i, &segment) != NULL && segment.p_type == PT_LOAD &&
            (segment.p_flags & PF_X) != 0) {
            uint64_t before = segment.p_vaddr % page;
            mapping->code_start = bias + segment.p_vaddr - before;
            mapping->code_end = (bias + segment.p_vaddr + segment.p_memsz + page - 1) / page * page;
            mapping->code_offset = segment.p_offset - before;
            return;
        }
    }
}

static uint32_t mapping_of(Dwfl_Module *module)
{
    Dwarf_Addr start;
    Dwarf_Addr end;
    const char *file = NULL;
    const char *name = dwfl_module_info(module, NULL, &start, &end, NULL, NULL, &file, NULL);
    for (uint32_t i = 0; i < mappings.count; i++) {
        if (mappings.items[i].start == start && mappings.items[i].end == end) {
            return i + 1;
        }
    }
    MR_GROW(mappings.items, mappings.room, mappings.count + 1);
    mappings.items[mappings.count++] = (struct mr_mapping){
        .start = start,
        .end = end,
        .file = mr_symbols_intern(file != NULL ? file : name),
        .build_id = intern_build_id(module),
    };
    find_code(module, &mappings.items[mappings.count - 1]);
    return mappings.count;
}

static uint64_t die_number(Dwarf_Die *die, unsigned name)
{
    Dwarf_Attribute attribute;
    Dwarf_Word value = 0;
    dwarf_formudata(dwarf_attr(die, name, &attribute), &value);
    return value;
}

static void add_frame(struct mr_location *location, struct mr_frame frame)
{
    location->frames =
        MR_REALLOC(location->frames, sizeof(location->frames[0]) * (location->frame_count + 1));
    location->frames[location->frame_count++] = frame;
}

/* The inlined functions around the address and the function that holds them, innermost first. The
 * line of each is where the one inside it is called. False: the debug information has no function
 * there. */
static bool add_dwarf_frames(struct mr_location *location, Dwfl_Module *module,
                             struct mr_frame place)
{
    Dwarf_Addr bias;
    Dwarf_Die *unit = dwfl_module_addrdie(module, location->address, &bias);
    Dwarf_Die *scopes = NULL;
    if (unit == NULL || dwarf_getscopes(unit, location->address - bias, &scopes) <= 0) {
        return false;
    }
    Dwarf_Die innermost = scopes[0];
    free(scopes);
    scopes = NULL;
    int count = dwarf_getscopes_die(&innermost, &scopes);
    Dwarf_Files *files = NULL;
    dwarf_getsrcfiles(unit, &files, NULL);
    for (int i = 0; i < count; i++) {
        int tag = dwarf_tag(&scopes[i]);
        if (tag != DW_TAG_inlined_subroutine && tag != DW_TAG_subprogram) {
            continue;
        }
        Dwarf_Attribute name;
        place.function = mr_symbols_intern(
            dwarf_formstring(dwarf_attr_integrate(&scopes[i], DW_AT_name, &name)));
        add_frame(location, place);
        if (tag == DW_TAG_subprogram) {
            break;
        }
        const char *file =
            files == NULL
                ? NULL
                : dwarf_filesrc(files, die_number(&scopes[i], DW_AT_call_file), NULL, NULL);
        place.file = mr_symbols_intern(file);
        place.line = (uint32_t)die_number(&scopes[i], DW_AT_call_line);
    }
    free(scopes);
    return location->frame_count > 0;
}

/* No debug information: the symbol table. A symbol without a size may be the neighbour's; a
 * function without a name shows as its object. */
static void name_by_symbol(struct mr_location *location, Dwfl_Module *module, struct mr_frame place)
{
    GElf_Off offset;
    GElf_Sym symbol = {0};
    const char *name =
        dwfl_module_addrinfo(module, location->address, &offset, &symbol, NULL, NULL, NULL);
    place.function = symbol.st_size > 0 ? mr_symbols_intern(name) : 0;
    add_frame(location, place);
}

/* Lines and inlined functions are those of the program. Of libraries the symbols do: their debug
 * information, where it is installed, is compressed, and libdw unpacks all of it for one address
 * (libc6-dbg: 15 MiB). */
static bool has_own_lines(uint64_t address)
{
    Dwfl_Module *program = mr_objects_find((uint64_t)(uintptr_t)mr_symbols_program);
    return program != NULL && mr_objects_find(address) == program;
}

static void name_location(struct mr_location *location)
{
    location->named = true;
    Dwfl_Module *module = mr_objects_find(location->address);
    if (module == NULL) {
        return;
    }
    location->mapping = mapping_of(module);
    struct mr_frame place = {0};
    int line_number = 0;
    bool lines = has_own_lines(location->address);
    Dwfl_Line *line = lines ? dwfl_module_getsrc(module, location->address) : NULL;
    const char *file =
        line == NULL ? NULL : dwfl_lineinfo(line, NULL, &line_number, NULL, NULL, NULL);
    if (file != NULL) {
        place.file = mr_symbols_intern(file);
        place.line = (uint32_t)line_number;
    }
    if (!lines || !add_dwarf_frames(location, module, place)) {
        name_by_symbol(location, module, place);
    }
    struct mr_mapping *mapping = &mappings.items[location->mapping - 1];
    mapping->has_lines |= location->frames[0].line != 0;
}

bool mr_symbols_name_some(uint32_t limit)
{
    while (locations.named < locations.by_address.count && limit > 0) {
        struct mr_location *location = &locations.items[locations.named++];
        if (!location->named) {
            name_location(location);
            limit--;
        }
    }
    return locations.named < locations.by_address.count;
}

uint32_t mr_symbols_pseudo(const char *name)
{
    /* No address of a process is up there. */
    uint32_t text = mr_symbols_intern(name);
    uint32_t id = mr_symbols_location(UINT64_MAX - text, false);
    struct mr_location *location = &locations.items[id - 1];
    if (!location->named) {
        location->named = true;
        add_frame(location, (struct mr_frame){.function = text});
    }
    return id;
}

const struct mr_location *mr_symbols_get(uint32_t location)
{
    MR_ASSERT(location > 0 && location <= locations.by_address.count);
    struct mr_location *found = &locations.items[location - 1];
    if (!found->named) {
        name_location(found);
    }
    return found;
}

const struct mr_mapping *mr_symbols_mapping(uint32_t mapping)
{
    MR_ASSERT(mapping > 0 && mapping <= mappings.count);
    return &mappings.items[mapping - 1];
}

uint32_t mr_symbols_program(void)
{
    Dwfl_Module *module = mr_objects_find((uint64_t)(uintptr_t)mr_symbols_program);
    return module == NULL ? 0 : mapping_of(module);
}

const char *mr_symbols_object(const struct mr_location *location)
{
    if (location->mapping == 0) {
        return "unknown";
    }
    const char *file = mr_symbols_text(mappings.items[location->mapping - 1].file);
    const char *slash = strrchr(file, '/');
    return slash == NULL ? file : slash + 1;
}
