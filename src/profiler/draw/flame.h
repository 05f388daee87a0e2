/* Flame graphs: stacks in, a self-contained interactive SVG, folded text or tables out. One thread
 * at a time.
 *
 * A `struct mr_flame` is a tree of frames with two values at every node: one profile, or two to be
 * compared. Its size is bounded: what exceeds a limit is counted at the deepest frame that could be
 * kept, so totals always hold.
 *
 * A frame is a name: "function", "function [libfoo.so.1]", "[libfoo.so.1]" where only the library
 * is known, "function [kernel]", "[encode]" to say the stage outright. What a compiler adds to a
 * name (produce.isra.0, f.cold) is left out. The first frame of a stack is its root, usually the
 * thread. */
#pragma once

#include "base/base.h"
#include "base/stage.h"

struct mr_flame;

enum { MR_FLAME_DEPTH_MAX = 256, MR_FLAME_NAME_MAX = 400 };

/* Which of the two profiles a stack belongs to; one profile alone is BEFORE. */
typedef enum mr_flame_side {
    MR_FLAME_BEFORE,
    MR_FLAME_AFTER,
} mr_flame_side;

struct mr_flame *mr_flame_new(void);
void mr_flame_free(struct mr_flame *flame);

/* Adds `value` to the stack of `count` names, root first. Names are copied, cut at
 * MR_FLAME_NAME_MAX bytes. */
void mr_flame_add(struct mr_flame *flame, mr_flame_side side, const mr_slice *names, size_t count,
                  uint64_t value);

/* Adds folded text: lines of "root;frame;leaf 12". Answers how many lines were no such thing. */
size_t mr_flame_add_folded(struct mr_flame *flame, mr_flame_side side, const char *text,
                           size_t len);

/* Sum of the values of one side. */
uint64_t mr_flame_total(const struct mr_flame *flame, mr_flame_side side);

/* The stacks of one side as folded text, sorted. The caller frees it; `ret_len` may be NULL. */
char *mr_flame_folded(const struct mr_flame *flame, mr_flame_side side, size_t *ret_len);

typedef enum mr_flame_colour {
    MR_FLAME_BY_STAGE,
    MR_FLAME_BY_CHANGE, /* red: grew, blue: shrank; of a row, or of both totals */
} mr_flame_colour;

struct mr_flame_drawing {
    const char *title;    /* NULL: "Flame graph" */
    const char *subtitle; /* NULL: none */
    const char *unit;     /* NULL: "samples" */
    const char *search;   /* regular expression marked when the graph opens; NULL: none */
    unsigned width;       /* pixels, 0: 1200; clamped to 300…20000 */
    double min_width;     /* narrower frames (pixels) are left out, 0: 0.2 */
    mr_flame_side side;   /* whose values make the widths */
    mr_flame_colour colour;
    /* by change: how many rows each profile is of; 0: not known, shares are compared */
    double rows[2];
    bool inverted; /* roots at the top */
};

/* The picture. The caller frees it; `ret_len` may be NULL. */
char *mr_flame_svg(const struct mr_flame *flame, const struct mr_flame_drawing *drawing,
                   size_t *ret_len);

/* The stage a frame names, or `inherited` (that of the frame below it) when it names none. Any
 * thread. */
enum mr_stage mr_flame_stage_of(mr_slice frame, enum mr_stage inherited);

/* Values by stage: a stack belongs to the stage of its deepest frame that names one. */
void mr_flame_stages(const struct mr_flame *flame, mr_flame_side side,
                     uint64_t ret_values[MR_STAGES]);

/* The same as a table of shares for people; `compared`: of both sides, and how they differ. */
void mr_flame_print_stages(const struct mr_flame *flame, bool compared, FILE *to);

/* The picture's style and script, embedded when millrace is built. */
mr_slice mr_flame_css(void);
mr_slice mr_flame_js(void);
