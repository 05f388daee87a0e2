/* The picture: every frame a rectangle that stands without the script, so that it shows as an image
 * too. */

#include "base/json.h"
#include "profiler/draw/tree.h"

enum {
    FRAME_HEIGHT = 16,
    MARGIN = 10,
    HEAD_HEIGHT = 58,
    FOOT_HEIGHT = 44, /* of one line of the legend */
    WIDTH_DEFAULT = 1200,
    WIDTH_MIN = 300,
    WIDTH_MAX = 20000,
    CHARACTER_WIDTH = 7,
    LEGEND_CHARACTER = 8, /* the widest that these labels come to in a browser's sans-serif */
    LEGEND_MARK = 27,     /* the coloured square, and the space to the next */
    COLOUR_MAX = 32,
};

struct canvas {
    const struct mr_flame *flame;
    const struct mr_flame_drawing *drawing;
    struct mr_text out;
    const char *unit;
    double scale; /* pixels a value */
    double min_width;
    uint64_t total[2];
    unsigned width, height;
    unsigned depth; /* of the deepest frame that is drawn */
    unsigned legend_lines;
};

static uint64_t node_width(const struct canvas *canvas, uint32_t node)
{
    return canvas->flame->nodes[node].total[canvas->drawing->side];
}

static bool is_drawn(const struct canvas *canvas, uint32_t node)
{
    uint64_t width = node_width(canvas, node);
    return width > 0 && (double)width * canvas->scale >= canvas->min_width;
}

static unsigned deepest(const struct canvas *canvas)
{
    unsigned depth = 0;
    for (uint32_t i = 0; i < canvas->flame->nodes_by_name.count; i++) {
        if (is_drawn(canvas, i) && canvas->flame->nodes[i].depth > depth) {
            depth = canvas->flame->nodes[i].depth;
        }
    }
    return depth;
}

/* U+FFFE and U+FFFF are UTF-8 but no XML. */
static bool is_xml(const uint8_t *at, size_t len)
{
    return len > 1 ? !(len == 3 && at[0] == 0xef && at[1] == 0xbf && at[2] >= 0xbe)
                   : *at >= 0x20 && *at != 0x7f;
}

static const char *xml_entity(uint8_t byte)
{
    static const char *const entities[] = {
        ['&'] = "&amp;", ['<'] = "&lt;", ['>'] = "&gt;", ['"'] = "&quot;", ['\''] = "&#39;"};
    return byte < MR_ARRAY_LEN(entities) ? entities[byte] : NULL;
}

/* The bytes as content of XML: markup escaped, what is no UTF-8 or no XML character replaced by
 * U+FFFD. */
static void write_xml(struct mr_text *text, mr_slice bytes)
{
    for (size_t i = 0; i < bytes.len;) {
        const uint8_t *at = bytes.data + i;
        size_t len = mr_utf8_sequence(at, bytes.len - i);
        const char *entity = xml_entity(*at);
        if (len == 0 || !is_xml(at, len)) {
            mr_text_string(text, "\xef\xbf\xbd");
        } else if (entity != NULL) {
            mr_text_string(text, entity);
        } else {
            mr_text_add(text, at, len);
        }
        i += len == 0 ? 1 : len;
    }
}

static double share(uint64_t value, uint64_t total)
{
    return total == 0 ? 0 : (double)value / (double)total;
}

/* What a row took of this value; without rows, its share of all. */
static double node_cost(const struct canvas *canvas, uint64_t value, mr_flame_side side)
{
    double rows = canvas->drawing->rows[side];
    return rows > 0 ? (double)value / rows : share(value, canvas->total[side]);
}

/* After minus before, as a part of all that there was before. A share moves when anything else
 * does, the cost of a row does not. */
static double node_change(const struct canvas *canvas, uint32_t node)
{
    const struct mr_flame_node *at = &canvas->flame->nodes[node];
    double all = node_cost(canvas, canvas->total[0], MR_FLAME_BEFORE);
    double change = node_cost(canvas, at->total[1], MR_FLAME_AFTER) -
                    node_cost(canvas, at->total[0], MR_FLAME_BEFORE);
    return all > 0 ? change / all : change;
}

static void write_change(struct canvas *canvas, uint32_t node)
{
    const struct mr_flame_node *at = &canvas->flame->nodes[node];
    double change = 100 * node_change(canvas, node);
    if (canvas->drawing->rows[0] > 0) {
        mr_text_format(&canvas->out, "; %.2f, before %.2f in 1000 rows, %+.2f %% of all before",
                       1000 * node_cost(canvas, at->total[1], MR_FLAME_AFTER),
                       1000 * node_cost(canvas, at->total[0], MR_FLAME_BEFORE), change);
    } else {
        mr_text_format(&canvas->out, "; change %+.2f points", change);
    }
}

/* Five points of all are the full colour, on which names are still legible; less than a thousandth
 * is none. */
static void colour_by_change(double change, char ret_colour[COLOUR_MAX])
{
    double strength = (change < 0 ? -change : change) / 0.05;
    strength = strength > 1 ? 1 : strength;
    unsigned pale = strength < 0.02 ? 240 : (unsigned)(225 - 95 * strength);
    if (strength < 0.02) {
        snprintf(ret_colour, COLOUR_MAX, "rgb(240,240,240)");
    } else if (change > 0) {
        snprintf(ret_colour, COLOUR_MAX, "rgb(255,%u,%u)", pale, pale);
    } else {
        snprintf(ret_colour, COLOUR_MAX, "rgb(%u,%u,255)", pale, pale);
    }
}

/* As much of the name as the width holds; not within a UTF-8 sequence. */
static mr_slice svg_fitting(mr_slice name, double width)
{
    size_t room = width < 6 ? 0 : (size_t)((width - 6) / CHARACTER_WIDTH);
    if (room < 3) {
        return (mr_slice){0};
    }
    if (name.len > room) {
        name.len = room - 2;
        while (name.len > 0 && (name.data[name.len] & 0xc0) == 0x80) {
            name.len--;
        }
    }
    return name;
}

static void write_tooltip(struct canvas *canvas, uint32_t node, mr_slice name)
{
    const struct mr_flame_node *at = &canvas->flame->nodes[node];
    mr_flame_side side = canvas->drawing->side;
    struct mr_text *out = &canvas->out;
    mr_text_string(out, "<title>");
    write_xml(out, name);
    mr_text_format(out, " (%llu ", (unsigned long long)at->total[side]);
    write_xml(out, mr_slice_of(canvas->unit));
    mr_text_format(out, ", %.2f %%, itself %.2f %%",
                   100 * share(at->total[side], canvas->total[side]),
                   100 * share(at->self[side], canvas->total[side]));
    if (canvas->drawing->colour == MR_FLAME_BY_CHANGE) {
        write_change(canvas, node);
    } else {
        mr_text_format(out, "; stage %s", mr_stage_name(at->stage));
    }
    mr_text_string(out, ")</title>");
}

static void svg_write_frame(struct canvas *canvas, uint32_t node, uint64_t begin)
{
    const struct mr_flame_node *at = &canvas->flame->nodes[node];
    mr_slice name = node == MR_FLAME_ROOT ? MR_SLICE("all") : canvas->flame->names[at->name];
    double x = MARGIN + (double)begin * canvas->scale;
    double width = (double)node_width(canvas, node) * canvas->scale;
    unsigned row = canvas->drawing->inverted ? at->depth : canvas->depth - at->depth;
    unsigned y = HEAD_HEIGHT + row * FRAME_HEIGHT;
    char colour[COLOUR_MAX];
    if (canvas->drawing->colour == MR_FLAME_BY_CHANGE) {
        colour_by_change(node_change(canvas, node), colour);
    } else {
        snprintf(colour, COLOUR_MAX, "%s", mr_flame_stage_colour(at->stage));
    }
    struct mr_text *out = &canvas->out;
    mr_text_format(out, "<g data-b=\"%llu\" data-n=\"%llu\" data-d=\"%u\" data-f=\"",
                   (unsigned long long)begin, (unsigned long long)node_width(canvas, node),
                   at->depth);
    write_xml(out, name);
    mr_text_string(out, "\">");
    write_tooltip(canvas, node, name);
    mr_text_format(out, "<rect x=\"%.2f\" y=\"%u\" width=\"%.2f\" height=\"%u\" fill=\"%s\"/>", x,
                   y, width, FRAME_HEIGHT - 1, colour);
    mr_slice shown = svg_fitting(name, width);
    if (shown.len > 0) {
        mr_text_format(out, "<text x=\"%.2f\" y=\"%u\">", x + 3, y + 12);
        write_xml(out, shown);
        mr_text_string(out, shown.len < name.len ? "..</text>" : "</text>");
    }
    mr_text_string(out, "</g>\n");
}

/* Depth is bounded by MR_FLAME_DEPTH_MAX. */
static void write_subtree(struct canvas *canvas, uint32_t node, uint64_t begin)
{
    if (!is_drawn(canvas, node)) {
        return;
    }
    svg_write_frame(canvas, node, begin);
    const struct mr_flame_node *nodes = canvas->flame->nodes;
    for (uint32_t at = nodes[node].child; at != MR_FLAME_NONE; at = nodes[at].next) {
        write_subtree(canvas, at, begin);
        begin += node_width(canvas, at);
    }
}

/* Draws the legend, or only measures it: the lines that it takes at this width. */
static unsigned write_stages(struct canvas *canvas, bool draws)
{
    uint64_t values[MR_STAGES];
    mr_flame_stages(canvas->flame, canvas->drawing->side, values);
    unsigned lines = 1;
    unsigned x = MARGIN;
    for (int stage = MR_STAGE_NONE + 1; stage < MR_STAGES; stage++) {
        bool is_beside = stage == MR_STAGE_HTTP || stage == MR_STAGE_PROFILER;
        if (is_beside && values[stage] == 0) {
            continue;
        }
        char label[40];
        int len = snprintf(label, sizeof(label), "%s %.1f %%", mr_stage_name(stage),
                           100 * share(values[stage], canvas->total[canvas->drawing->side]));
        unsigned width = LEGEND_MARK + (unsigned)len * LEGEND_CHARACTER;
        if (x > MARGIN && x + width > canvas->width - MARGIN) {
            x = MARGIN;
            lines++;
        }
        if (draws) {
            unsigned y = canvas->height - 12 - (canvas->legend_lines - lines) * FRAME_HEIGHT;
            mr_text_format(&canvas->out,
                           "<rect x=\"%u\" y=\"%u\" width=\"11\" height=\"11\" fill=\"%s\"/>"
                           "<text x=\"%u\" y=\"%u\">%s</text>\n",
                           x, y - 10, mr_flame_stage_colour(stage), x + 15, y, label);
        }
        x += width;
    }
    return lines;
}

static void write_legend(struct canvas *canvas)
{
    if (canvas->drawing->colour == MR_FLAME_BY_STAGE) {
        write_stages(canvas, true);
        return;
    }
    mr_text_format(&canvas->out,
                   "<text x=\"%u\" y=\"%u\">red: more than before, blue: less, grey: the same "
                   "(%s)</text>\n",
                   MARGIN, canvas->height - 12,
                   canvas->drawing->rows[0] > 0 ? "of a row; full colour from 5 % of all before on"
                                                : "each profile as shares of its own total");
}

static void svg_write_text(struct mr_text *out, const char *id, unsigned x, unsigned y,
                           const char *attributes, const char *text)
{
    mr_text_format(out, "<text id=\"%s\" x=\"%u\" y=\"%u\"%s>", id, x, y, attributes);
    write_xml(out, mr_slice_of(text));
    mr_text_string(out, "</text>\n");
}

static void write_head(struct canvas *canvas)
{
    const struct mr_flame_drawing *drawing = canvas->drawing;
    struct mr_text *out = &canvas->out;
    mr_text_format(
        out,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<svg xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\" width=\"%u\" height=\"%u\" "
        "viewBox=\"0 0 %u %u\" data-left=\"%d\" data-room=\"%u\" data-total=\"%llu\" "
        "data-search=\"",
        canvas->width, canvas->height, canvas->width, canvas->height, MARGIN,
        canvas->width - 2 * MARGIN, (unsigned long long)canvas->total[drawing->side]);
    write_xml(out, mr_slice_of(drawing->search == NULL ? "" : drawing->search));
    mr_text_format(out,
                   "\">\n<style>%.*s</style>\n"
                   "<rect id=\"ground\" width=\"100%%\" height=\"100%%\"/>\n",
                   MR_SLICE_ARGS(mr_flame_css()));
    svg_write_text(out, "title", canvas->width / 2, 22, "",
                   drawing->title == NULL ? "Flame graph" : drawing->title);
    svg_write_text(out, "subtitle", canvas->width / 2, 42, " text-anchor=\"middle\"",
                   drawing->subtitle == NULL ? "" : drawing->subtitle);
    svg_write_text(out, "reset", MARGIN, 22, " class=\"off\"", "reset zoom");
    svg_write_text(out, "search", canvas->width - MARGIN, 22,
                   " class=\"button\" text-anchor=\"end\"", "search");
    svg_write_text(out, "matched", canvas->width - MARGIN, 42, " text-anchor=\"end\"", "");
    svg_write_text(out, "details", MARGIN,
                   canvas->height - 14 - canvas->legend_lines * FRAME_HEIGHT, "", "");
}

static void canvas_measure(struct canvas *canvas)
{
    const struct mr_flame_drawing *drawing = canvas->drawing;
    unsigned width = drawing->width == 0 ? WIDTH_DEFAULT : drawing->width;
    canvas->width = width < WIDTH_MIN ? WIDTH_MIN : width > WIDTH_MAX ? WIDTH_MAX : width;
    canvas->min_width = drawing->min_width > 0 ? drawing->min_width : 0.2;
    uint64_t total = canvas->total[drawing->side];
    canvas->scale = total == 0 ? 0 : (double)(canvas->width - 2 * MARGIN) / (double)total;
    canvas->depth = deepest(canvas);
    canvas->legend_lines = drawing->colour == MR_FLAME_BY_STAGE ? write_stages(canvas, false) : 1;
    canvas->height =
        HEAD_HEIGHT + (canvas->depth + canvas->legend_lines) * FRAME_HEIGHT + FOOT_HEIGHT;
}

char *mr_flame_svg(const struct mr_flame *flame, const struct mr_flame_drawing *drawing,
                   size_t *ret_len)
{
    struct canvas canvas = {
        .flame = flame,
        .drawing = drawing,
        .unit = drawing->unit == NULL ? "samples" : drawing->unit,
        .total = {mr_flame_total(flame, MR_FLAME_BEFORE), mr_flame_total(flame, MR_FLAME_AFTER)},
    };
    canvas_measure(&canvas);
    write_head(&canvas);
    mr_text_string(&canvas.out, "<g id=\"frames\">\n");
    write_subtree(&canvas, MR_FLAME_ROOT, 0);
    mr_text_string(&canvas.out, "</g>\n");
    if (canvas.total[drawing->side] == 0) {
        svg_write_text(&canvas.out, "empty", MARGIN, HEAD_HEIGHT + 12, "", "no samples");
    }
    write_legend(&canvas);
    mr_text_format(&canvas.out, "<script><![CDATA[\n%.*s]]></script>\n</svg>\n",
                   MR_SLICE_ARGS(mr_flame_js()));
    if (ret_len != NULL) {
        *ret_len = canvas.out.len;
    }
    return canvas.out.data;
}
