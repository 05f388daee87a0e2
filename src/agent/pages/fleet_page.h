/* The files of the fleet's page, embedded when millrace is built. */
#pragma once

#include "base/base.h"

mr_slice mr_fleet_page_html(void);
mr_slice mr_fleet_page_css(void);
mr_slice mr_fleet_page_js(void);
