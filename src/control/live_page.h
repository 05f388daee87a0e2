/* The files of the live page, embedded when millrace is built. */
#ifndef MR_CONTROL_LIVE_PAGE_H
#define MR_CONTROL_LIVE_PAGE_H

#include "base/base.h"

mr_slice mr_live_page_html(void);
mr_slice mr_live_page_css(void);
mr_slice mr_live_page_js(void);

#endif
