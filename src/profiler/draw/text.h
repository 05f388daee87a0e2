/* Text of pictures. One thread. */
#ifndef MR_FLAME_TEXT_H
#define MR_FLAME_TEXT_H

#include "base/text.h"

/* The bytes as content of XML: markup escaped, what is no UTF-8 or no XML character replaced by U+FFFD. */
void mr_flame_text_xml(struct mr_text *text, mr_slice bytes);

#endif
