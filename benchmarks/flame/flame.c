/* millrace-flame: the flame graphs of src/profiler/draw, of folded text. Files in, standard output
 * out. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiler/draw/tree.h"

static const char usage[] =
    "Usage: millrace-flame svg [options] PROFILE [AFTER]\n"
    "       millrace-flame tree PROFILE\n"
    "\n"
    "PROFILE is folded text (\"thread;function;leaf 12\" a line); - is standard input.\n"
    "\n"
    "  svg   the flame graph; with AFTER the differential one\n"
    "  tree  a line for each node, from the root up: depth, stage, value on top, value, name\n"
    "\n"
    "  --title TEXT   --subtitle TEXT   --unit WORD\n"
    "  --width N      pixels (1200)\n"
    "  --negate       differential: widths of PROFILE instead of AFTER, so that what vanished "
    "shows\n"
    "  --rows A,B     differential: how many rows each profile is of. Costs of a row are compared "
    "then, else shares\n"
    "  --inverted     roots at the top\n"
    "  --search REGEX marked when the graph opens\n"
    "  --help         this text\n";

enum { EXIT_USAGE = 64 };

static void read_options(int argc, char **argv, struct mr_flame_drawing *drawing, int *ret_negate)
{
    enum { TITLE = 256, SUBTITLE, UNIT, SEARCH, WIDTH, INVERTED, ROWS };
    const struct option known[] = {
        {"title", required_argument, NULL, TITLE}, {"subtitle", required_argument, NULL, SUBTITLE},
        {"unit", required_argument, NULL, UNIT},   {"search", required_argument, NULL, SEARCH},
        {"width", required_argument, NULL, WIDTH}, {"inverted", no_argument, NULL, INVERTED},
        {"rows", required_argument, NULL, ROWS},   {"negate", no_argument, ret_negate, true},
        {"help", no_argument, NULL, 'h'},          {0},
    };
    int option;
    while ((option = getopt_long(argc, argv, "h", known, NULL)) != -1) {
        switch (option) {
        case 0:
            break;
        case TITLE:
            drawing->title = optarg;
            break;
        case SUBTITLE:
            drawing->subtitle = optarg;
            break;
        case UNIT:
            drawing->unit = optarg;
            break;
        case SEARCH:
            drawing->search = optarg;
            break;
        case WIDTH:
            drawing->width = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case INVERTED:
            drawing->inverted = true;
            break;
        case ROWS:
            if (sscanf(optarg, "%lf,%lf", &drawing->rows[0], &drawing->rows[1]) != 2 ||
                drawing->rows[0] <= 0 || drawing->rows[1] <= 0) {
                fputs("millrace-flame: --rows wants two numbers above 0: --rows 1000,2000\n",
                      stderr);
                exit(EXIT_USAGE);
            }
            break;
        case 'h':
            fputs(usage, stdout);
            exit(0);
        default:
            exit(EXIT_USAGE);
        }
    }
}

static void read_profile(struct mr_flame *flame, mr_flame_side side, const char *path)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    char *line = NULL;
    size_t size = 0;
    size_t wrong = 0;
    ssize_t len;
    if (file == NULL) {
        fprintf(stderr, "millrace-flame: cannot open %s: %s\n", path, strerror(errno));
        exit(EXIT_USAGE);
    }
    while ((len = getline(&line, &size, file)) > 0) {
        wrong += mr_flame_add_folded(flame, side, line, (size_t)len);
    }
    if (wrong > 0 || ferror(file)) {
        fprintf(stderr, "millrace-flame: %s: %zu lines are not folded stacks and were left out\n",
                path, wrong);
    }
    free(line);
    fclose(file);
}

/* Depth is bounded by MR_FLAME_DEPTH_MAX. */
static void print_tree(const struct mr_flame *flame, uint32_t number)
{
    const struct mr_flame_node *node = &flame->nodes[number];
    mr_slice name = number == MR_FLAME_ROOT ? MR_SLICE("all") : flame->names[node->name];
    printf("%u %s %" PRIu64 " %" PRIu64 " %.*s\n", node->depth,
           mr_stage_name((enum mr_stage)node->stage), node->self[0], node->total[0], (int)name.len,
           (const char *)name.data);
    for (uint32_t at = node->child; at != MR_FLAME_NONE; at = flame->nodes[at].next) {
        print_tree(flame, at);
    }
}

int main(int argc, char **argv)
{
    struct mr_flame_drawing drawing = {0};
    int negate = false;
    read_options(argc, argv, &drawing, &negate);
    int files = argc - optind - 1;
    bool draws = files >= 0 && strcmp(argv[optind], "svg") == 0;
    if (files < 1 || files > 1 + draws || (!draws && strcmp(argv[optind], "tree") != 0)) {
        fputs(usage, stderr);
        return EXIT_USAGE;
    }
    struct mr_flame *flame = mr_flame_new();
    for (int i = 0; i < files; i++) {
        read_profile(flame, i == 0 ? MR_FLAME_BEFORE : MR_FLAME_AFTER, argv[optind + 1 + i]);
    }
    if (draws) {
        drawing.side = files == 2 && !negate ? MR_FLAME_AFTER : MR_FLAME_BEFORE;
        drawing.colour = files == 2 ? MR_FLAME_BY_CHANGE : MR_FLAME_BY_STAGE;
        char *svg = mr_flame_svg(flame, &drawing, NULL);
        fputs(svg, stdout);
        free(svg);
    } else {
        print_tree(flame, MR_FLAME_ROOT);
    }
    mr_flame_free(flame);
    return fflush(stdout) == 0 ? 0 : EXIT_FAILURE;
}
