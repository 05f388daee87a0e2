/* What makes the picture answer to a reader: its style and its script, as text for the SVG. */
#ifndef MR_FLAME_SCRIPT_H
#define MR_FLAME_SCRIPT_H

extern const char mr_flame_style[];
extern const char mr_flame_script[];

#endif
