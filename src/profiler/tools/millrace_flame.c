/* millrace-flame: the flame graph library as a program. Files in, standard output out. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiler/draw/flame.h"
#include "profiler/draw/perf_script.h"

static const char usage[] =
    "Usage: millrace-flame COMMAND [options] PROFILE [AFTER]\n"
    "\n"
    "Draws and counts profiles. PROFILE is folded text (\"thread;function;leaf 12\" a line), or "
    "with\n"
    "--perf what `perf script -F comm,tid,ip,sym,dso --no-inline` prints; - is standard input.\n"
    "With AFTER, two profiles are compared.\n"
    "\n"
    "  svg        the flame graph, or the differential one\n"
    "  folded     folded text (of PROFILE)\n"
    "  stages     share of each stage\n"
    "  functions  share of each function, on top of the stack and anywhere on it\n"
    "  json       totals, quality, stages and functions\n"
    "\n"
    "  --perf             the profiles are output of perf script\n"
    "  --program NAME     file name of the program whose functions stand without a library "
    "(millrace)\n"
    "  --title TEXT       --subtitle TEXT   --unit WORD\n"
    "  --width N          pixels (1200)     --height N  pixels (as needed)\n"
    "  --min-width N      leave out frames narrower than N pixels (0.2)\n"
    "  --color HOW        stage, library, name; two profiles: change\n"
    "  --negate           differential: widths of PROFILE instead of AFTER, so that what vanished "
    "shows\n"
    "  --inverted         roots at the top\n"
    "  --search REGEX     marked when the graph opens\n"
    "  --rows N           rows of the table of functions (40; 0: all)\n"
    "  --help             this text\n";

struct options {
    struct mr_flame_drawing drawing;
    const char *program;
    size_t rows;
    bool perf;
    bool negate;
    bool coloured;
};

static void fail(const char *format, ...) __attribute__((noreturn)) MR_PRINTF(1, 2);

static void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("millrace-flame: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(64);
}

static double number(const char *text, const char *option)
{
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || errno != 0 || !(value >= 0) || value > 1e9) {
        fail("--%s wants a number, not \"%s\"", option, text);
    }
    return value;
}

static mr_flame_colour colour(const char *word)
{
    static const char *const words[] = {[MR_FLAME_BY_STAGE] = "stage",
                                        [MR_FLAME_BY_LIBRARY] = "library",
                                        [MR_FLAME_BY_NAME] = "name",
                                        [MR_FLAME_BY_CHANGE] = "change"};
    for (size_t i = 0; i < MR_ARRAY_LEN(words); i++) {
        if (strcmp(word, words[i]) == 0) {
            return (mr_flame_colour)i;
        }
    }
    fail("--color is stage, library, name or change, not \"%s\"", word);
}

static void read_options(int argc, char **argv, struct options *options)
{
    enum {
        TITLE = 256,
        SUBTITLE,
        UNIT,
        SEARCH,
        WIDTH,
        HEIGHT,
        MIN_WIDTH,
        COLOR,
        NEGATE,
        INVERTED,
        PERF,
        PROGRAM,
        ROWS
    };
    static const struct option known[] = {
        {"title", required_argument, NULL, TITLE},
        {"subtitle", required_argument, NULL, SUBTITLE},
        {"unit", required_argument, NULL, UNIT},
        {"search", required_argument, NULL, SEARCH},
        {"width", required_argument, NULL, WIDTH},
        {"height", required_argument, NULL, HEIGHT},
        {"min-width", required_argument, NULL, MIN_WIDTH},
        {"color", required_argument, NULL, COLOR},
        {"negate", no_argument, NULL, NEGATE},
        {"inverted", no_argument, NULL, INVERTED},
        {"perf", no_argument, NULL, PERF},
        {"program", required_argument, NULL, PROGRAM},
        {"rows", required_argument, NULL, ROWS},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    int option;
    while ((option = getopt_long(argc, argv, "h", known, NULL)) != -1) {
        switch (option) {
        case TITLE:
            options->drawing.title = optarg;
            break;
        case SUBTITLE:
            options->drawing.subtitle = optarg;
            break;
        case UNIT:
            options->drawing.unit = optarg;
            break;
        case SEARCH:
            options->drawing.search = optarg;
            break;
        case WIDTH:
            options->drawing.width = (unsigned)number(optarg, "width");
            break;
        case HEIGHT:
            options->drawing.height = (unsigned)number(optarg, "height");
            break;
        case MIN_WIDTH:
            options->drawing.min_width = number(optarg, "min-width");
            break;
        case COLOR:
            options->drawing.colour = colour(optarg);
            options->coloured = true;
            break;
        case NEGATE:
            options->negate = true;
            break;
        case INVERTED:
            options->drawing.inverted = true;
            break;
        case PERF:
            options->perf = true;
            break;
        case PROGRAM:
            options->program = optarg;
            break;
        case ROWS:
            options->rows = (size_t)number(optarg, "rows");
            break;
        case 'h':
            fputs(usage, stdout);
            exit(0);
        default:
            exit(64);
        }
    }
}

/* A line at a time: the script of a long profile is large. */
static void read_profile(struct mr_flame *flame, mr_flame_side side, const char *path,
                         const struct options *options)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    if (file == NULL) {
        fail("cannot open %s: %s", path, strerror(errno));
    }
    struct mr_perf_script *script =
        options->perf ? mr_perf_script_new(flame, side, options->program) : NULL;
    char *line = NULL;
    size_t size = 0;
    size_t wrong = 0;
    ssize_t len;
    while ((len = getline(&line, &size, file)) > 0) {
        len -= line[len - 1] == '\n';
        if (script != NULL) {
            mr_perf_script_line(script, line, (size_t)len);
        } else {
            wrong += mr_flame_add_folded(flame, side, line, (size_t)len);
        }
    }
    if (ferror(file)) {
        fail("cannot read %s: %s", path, strerror(errno));
    }
    free(line);
    if (file != stdin) {
        fclose(file);
    }
    if (script != NULL) {
        mr_perf_script_done(script);
    }
    if (wrong > 0) {
        fprintf(stderr, "millrace-flame: %s: %zu lines are no folded stacks and were left out\n",
                path, wrong);
    }
}

/* ---- tables ---- */

static double percent(uint64_t value, uint64_t total)
{
    return total == 0 ? 0 : 100.0 * (double)value / (double)total;
}

static void print_functions(const struct mr_flame *flame, bool compared, size_t rows)
{
    size_t count;
    struct mr_flame_function *functions = mr_flame_functions(flame, &count);
    uint64_t total[2] = {mr_flame_total(flame, MR_FLAME_BEFORE),
                         mr_flame_total(flame, MR_FLAME_AFTER)};
    puts(compared ? "   self    after    total    after  stage    function"
                  : "   self    total  stage    function");
    for (size_t i = 0; i < count && (rows == 0 || i < rows); i++) {
        const struct mr_flame_function *row = &functions[i];
        for (int side = 0; side < 1 + compared; side++) {
            printf("%6.2f%%  ", percent(row->self[side], total[side]));
        }
        for (int side = 0; side < 1 + compared; side++) {
            printf("%6.2f%%  ", percent(row->total[side], total[side]));
        }
        printf("%-8s %.*s\n", mr_stage_name(row->stage), (int)row->name.len,
               (const char *)row->name.data);
    }
    free(functions);
}

static void print_json_string(mr_slice text)
{
    putchar('"');
    for (size_t i = 0; i < text.len; i++) {
        unsigned char byte = text.data[i];
        if (byte == '"' || byte == '\\') {
            printf("\\%c", byte);
        } else if (byte < 0x20 || byte >= 0x7f) {
            printf("\\u%04x", byte); /* names are ASCII but for odd ones */
        } else {
            putchar(byte);
        }
    }
    putchar('"');
}

static void print_pair(const char *name, const uint64_t values[2], bool compared)
{
    printf("\"%s\":", name);
    if (compared) {
        printf("[%" PRIu64 ",%" PRIu64 "]", values[0], values[1]);
    } else {
        printf("%" PRIu64, values[0]);
    }
}

static void print_json(const struct mr_flame *flame, bool compared)
{
    struct mr_flame_quality quality[2];
    uint64_t stages[2][MR_STAGES];
    for (int side = 0; side < 2; side++) {
        quality[side] = mr_flame_quality(flame, side);
        mr_flame_stages(flame, side, stages[side]);
    }
    putchar('{');
    print_pair("total", (uint64_t[]){quality[0].total, quality[1].total}, compared);
    putchar(',');
    print_pair("named", (uint64_t[]){quality[0].named, quality[1].named}, compared);
    putchar(',');
    print_pair("rooted", (uint64_t[]){quality[0].rooted, quality[1].rooted}, compared);
    fputs(",\n\"stages\":{", stdout);
    for (int stage = MR_STAGE_NONE + 1; stage < MR_STAGES; stage++) {
        fputs(stage == MR_STAGE_NONE + 1 ? "" : ",", stdout);
        print_pair(mr_stage_name(stage), (uint64_t[]){stages[0][stage], stages[1][stage]},
                   compared);
    }
    fputs("},\n\"functions\":[", stdout);
    size_t count;
    struct mr_flame_function *functions = mr_flame_functions(flame, &count);
    for (size_t i = 0; i < count; i++) {
        fputs(i == 0 ? "\n{\"name\":" : ",\n{\"name\":", stdout);
        print_json_string(functions[i].name);
        printf(",\"stage\":\"%s\",", mr_stage_name(functions[i].stage));
        print_pair("self", functions[i].self, compared);
        putchar(',');
        print_pair("total", functions[i].total, compared);
        putchar('}');
    }
    free(functions);
    puts("\n]}");
}

static void print_text(char *text, size_t len)
{
    fwrite(text, 1, len, stdout);
    free(text);
}

static void draw(const struct mr_flame *flame, struct options *options, bool compared)
{
    options->drawing.side = compared && !options->negate ? MR_FLAME_AFTER : MR_FLAME_BEFORE;
    if (compared && !options->coloured) {
        options->drawing.colour = MR_FLAME_BY_CHANGE;
    }
    size_t len;
    char *svg = mr_flame_svg(flame, &options->drawing, &len);
    print_text(svg, len);
}

int main(int argc, char **argv)
{
    struct options options = {.program = "millrace", .rows = 40};
    read_options(argc, argv, &options);
    if (argc - optind < 2 || argc - optind > 3) {
        fputs(usage, stderr);
        return 64;
    }
    const char *command = argv[optind];
    bool compared = argc - optind == 3;
    struct mr_flame *flame = mr_flame_new();
    read_profile(flame, MR_FLAME_BEFORE, argv[optind + 1], &options);
    if (compared) {
        read_profile(flame, MR_FLAME_AFTER, argv[optind + 2], &options);
    }
    if (strcmp(command, "svg") == 0) {
        draw(flame, &options, compared);
    } else if (strcmp(command, "folded") == 0) {
        size_t len;
        char *folded = mr_flame_folded(flame, MR_FLAME_BEFORE, &len);
        print_text(folded, len);
    } else if (strcmp(command, "stages") == 0) {
        mr_flame_print_stages(flame, compared, stdout);
    } else if (strcmp(command, "functions") == 0) {
        print_functions(flame, compared, options.rows);
    } else if (strcmp(command, "json") == 0) {
        print_json(flame, compared);
    } else {
        fail("there is no command \"%s\"; try --help", command);
    }
    mr_flame_free(flame);
    if (fflush(stdout) != 0) {
        fail("cannot write: %s", strerror(errno));
    }
    return 0;
}
