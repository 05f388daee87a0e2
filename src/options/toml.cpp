#include "options/toml.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <sstream>
#include <string>
#include <toml.hpp>
#include <tuple>
#include <utility>
#include <vector>

extern "C" {
#include "base/json.h"
}

namespace
{

char *copy_string(const std::string &text)
{
    return mr_strndup(text.data(), text.size(), __FILE__, __LINE__);
}

/* Debian 12 has toml11 3.7, Debian 13 has 4.4, which names some things otherwise. 3.7 goes through
 * all that is before the value. */
#if TOML11_VERSION_MAJOR >= 4
uint32_t line_of(const toml::value &value)
{
    return static_cast<uint32_t>(value.location().first_line_number());
}

const std::string &string_of(const toml::value &value)
{
    return value.as_string();
}
#else
uint32_t line_of(const toml::value &value)
{
    return static_cast<uint32_t>(value.location().line());
}

const std::string &string_of(const toml::value &value)
{
    return value.as_string().str;
}
#endif

void fill(mr_toml_node *node, const toml::value &value, uint32_t line);

mr_toml_node *new_children(mr_toml_node *node, size_t count)
{
    node->children =
        static_cast<mr_toml_node *>(mr_alloc(sizeof(mr_toml_node) * count, __FILE__, __LINE__));
    node->count = static_cast<uint32_t>(count);
    return node->children;
}

/* Texts have the array's line: to find 50,000 places took minutes. */
void fill_array(mr_toml_node *node, const toml::array &array)
{
    mr_toml_node *child = new_children(node, array.size());
    for (const toml::value &element : array) {
        fill(child++, element, element.is_string() ? node->line : line_of(element));
    }
}

/* toml11 keeps tables unordered; the file's order makes messages and lists read as written. */
void fill_table(mr_toml_node *node, const toml::table &table)
{
    std::vector<std::pair<uint32_t, const std::pair<const std::string, toml::value> *>> entries;
    for (const auto &entry : table) {
        entries.emplace_back(line_of(entry.second), &entry);
    }
    std::sort(entries.begin(), entries.end(), [](const auto &a, const auto &b) {
        return std::tie(a.first, a.second->first) < std::tie(b.first, b.second->first);
    });
    mr_toml_node *child = new_children(node, entries.size());
    for (const auto &[line, entry] : entries) {
        child->key = copy_string(entry->first);
        fill(child++, entry->second, line);
    }
}

void fill(mr_toml_node *node, const toml::value &value, uint32_t line)
{
    node->line = line;
    if (value.is_string()) {
        node->kind = MR_TOML_STRING;
        node->string = copy_string(string_of(value));
    } else if (value.is_integer()) {
        node->kind = MR_TOML_INTEGER;
        node->integer = value.as_integer();
    } else if (value.is_boolean()) {
        node->kind = MR_TOML_BOOLEAN;
        node->integer = value.as_boolean() ? 1 : 0;
    } else if (value.is_floating()) {
        node->kind = MR_TOML_FLOAT;
    } else if (value.is_array()) {
        node->kind = MR_TOML_ARRAY;
        fill_array(node, value.as_array());
    } else if (value.is_table()) {
        node->kind = MR_TOML_TABLE;
        fill_table(node, value.as_table());
    } else {
        node->kind = MR_TOML_OTHER;
    }
}

void free_inside(mr_toml_node *node)
{
    for (uint32_t i = 0; i < node->count; i++) {
        free_inside(&node->children[i]);
    }
    /* Values may be secrets that somebody wrote into the file by mistake. */
    if (node->string != nullptr) {
        explicit_bzero(node->string, strlen(node->string));
    }
    std::free(node->string);
    std::free(node->key);
    std::free(node->children);
}

/* toml11 3 names its own function and draws a picture of the place over several lines; what is
 * wrong stands in between. */
std::string reason_of(const char *text)
{
    std::string line(text);
    line = line.substr(0, line.find('\n'));
    const size_t function = line.find("toml::");
    const size_t colon = function == std::string::npos ? function : line.find(": ", function);
    return colon == std::string::npos ? line : line.substr(colon + 2);
}

/* toml11 moves values in functions that may not throw, where std::bad_alloc would end the process
 * without a word; so it ends here, as mr_alloc does it. */
void out_of_memory()
{
    std::fputs("millrace: out of memory while the configuration was read\n", stderr);
    std::abort();
}

/* Bytes from the beginning that are UTF-8. Asked before toml11 is: version 3.7.1 reads outside its
 * memory when it tells where a literal string is none (found by fuzz_config). */
size_t utf8_prefix(const char *text, size_t len)
{
    size_t at = 0;
    while (at < len) {
        const size_t sequence =
            mr_utf8_sequence(reinterpret_cast<const uint8_t *>(text) + at, len - at);
        if (sequence == 0) {
            break;
        }
        at += sequence;
    }
    return at;
}

/* At the end of a text without a last line break, toml11 names the line after it. */
uint32_t line_within(size_t line, const char *text, size_t len)
{
    const auto breaks = static_cast<size_t>(std::count(text, text + len, '\n'));
    return static_cast<uint32_t>(std::min(line, breaks + 1));
}

} // namespace

extern "C" struct mr_toml_node *mr_toml_parse(const char *text, size_t len, uint32_t *ret_line,
                                              char *ret_reason, size_t reason_size)
{
    std::set_new_handler(out_of_memory);
    const size_t good = utf8_prefix(text, len);
    if (good < len) {
        *ret_line = static_cast<uint32_t>(std::count(text, text + good, '\n') + 1);
        std::snprintf(ret_reason, reason_size, "byte %zu is not UTF-8; save the file as UTF-8",
                      good + 1);
        return nullptr;
    }
    try {
        std::istringstream stream(std::string(text, len));
        const toml::value root = toml::parse(stream, "configuration");
        auto *node =
            static_cast<mr_toml_node *>(mr_alloc(sizeof(mr_toml_node), __FILE__, __LINE__));
        fill(node, root, line_of(root));
        return node;
#if TOML11_VERSION_MAJOR >= 4
    } catch (const toml::syntax_error &error) {
        const toml::error_info &first = error.errors().front();
        *ret_line = first.locations().empty()
                        ? 1
                        : line_within(first.locations()[0].first.first_line_number(), text, len);
        std::snprintf(ret_reason, reason_size, "%s", reason_of(first.title().c_str()).c_str());
#else
    } catch (const toml::exception &error) {
        *ret_line = line_within(error.location().line(), text, len);
        std::snprintf(ret_reason, reason_size, "%s", reason_of(error.what()).c_str());
#endif
    } catch (const std::exception &error) {
        *ret_line = 1;
        std::snprintf(ret_reason, reason_size, "%s", reason_of(error.what()).c_str());
    }
    return nullptr;
}

extern "C" void mr_toml_free(struct mr_toml_node *root)
{
    if (root != nullptr) {
        free_inside(root);
        std::free(root);
    }
}
