/* What is beside the profiles: switching heap profiling, and what `go tool pprof` asks for. */
#ifndef MR_PPROF_COMMANDS_H
#define MR_PPROF_COMMANDS_H

#include "control/http.h"

void mr_pprof_add_commands(struct mr_http *http);

#endif
