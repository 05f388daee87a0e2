#include "base/markdown.h"

/* Two underscores would make what they are around bold; one within a word is one. */
static bool is_sign(const char *begin, const char *at)
{
    bool is_pair = *at == '_' && (at[1] == '_' || (at > begin && at[-1] == '_'));
    return is_pair || *at == '*' || *at == '<' || *at == '|';
}

void mr_markdown_print(const char *text, FILE *to)
{
    const char *begin = text;
    for (; *text != '\0'; text++) {
        const char *end = strncmp(text, "docs/", 5) == 0 ? strstr(text, ".md") : NULL;
        if (end != NULL) {
            int len = (int)(end - text) - 2; /* of what is between docs/ and the end of .md */
            fprintf(to, "[%.*s](%.*s)", len, text + 5, len, text + 5);
            text = end + 2;
        } else {
            fprintf(to, "%s%c", is_sign(begin, text) ? "\\" : "", *text);
        }
    }
}
