/* The files of the live page, embedded when millrace is built. */
#pragma once

#include "base/base.h"

mr_slice mr_live_page_html(void);
mr_slice mr_live_page_css(void);
mr_slice mr_live_page_js(void);
