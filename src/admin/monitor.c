#include "admin/monitor.h"
