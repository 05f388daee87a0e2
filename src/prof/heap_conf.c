/* What jemalloc reads before main. MALLOC_CONF in the environment comes after and wins. Linked into the program only,
 * so that tools and tests stay as they are.
 *
 * Profiling may be switched on later (which it could not otherwise), at one sample in 512 KiB; until then it costs
 * 0.3 % of a malloc and free.
 *
 * One arena and no pages kept for later: few threads allocate, and none of ours does for an event, so that a second
 * arena or kept pages are megabytes for nothing. benchmarks/drain.sh, peak of 8 runs: 26.6 MB with jemalloc's
 * defaults, 23.6 MB so, 24.3 MB with the C library's malloc; no difference in rate or CPU time. */
extern const char *malloc_conf;
const char *malloc_conf = "narenas:1,dirty_decay_ms:0,muzzy_decay_ms:0,"
                          "prof:true,prof_active:false,lg_prof_sample:19,prof_accum:true";
