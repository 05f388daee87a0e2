/* An agent on a host: runs the pipelines of a fleet that Kafka's group protocol places there, each as a process, until SIGTERM, or until
 * another agent takes its name. Where a pipeline runs may be wrong at any time; slot, advisory lock and transactional id protect. */
#pragma once

#include "fleet/fleet.h"

mr_fleet_fn mr_agent_run; /* `millrace fleet run`; main thread */
