/* What jemalloc reads before main. MALLOC_CONF in the environment comes after and wins. Linked into
 * the program only, so that tools and tests stay as they are.
 *
 * Profiling may be switched on later (which it could not otherwise), at one sample in 512 KiB;
 * until then it costs 0.3 % of a malloc and free.
 *
 * One arena, and pages that are free are given back after a tenth of a second: few threads
 * allocate, and none of ours does for an event, so that more is megabytes for nothing. Peaks of a
 * backlog of 400,000 rows, at least and exactly once, on a machine with dear system calls: 26.5 and
 * 27.9 MB so, with the C library's allocator 24.5 and 25.8. When pages are given back at once, 0.5
 * to 0.9 less, but librdkafka's thread takes 3.2 us a row instead of 2.4; a background thread that
 * gives them back costs 0.3 MB more. Fewer objects kept by a thread (tcache_nslots_large,
 * _small_max) save less than 0.1.
 *
 * A thread keeps what it frees up to 128 KiB, not only up to 32: librdkafka takes and frees 68 KiB
 * for each request, and jemalloc gave those pages back to the system nearly each time (strace at
 * 100 transactions a second: 110 madvise of 68 KiB a second). A backlog beside the build before,
 * three rounds: 0.86 of its CPU, the same peak; a steady rate: 0.93 at 10,000 rows/s. jemalloc 5.3
 * calls it tcache_max and takes the older name, too (stats_print shows 131072). */
#ifdef MILLRACE_HEAP_PROFILES
#define PROFILES ",prof:true,prof_active:false,lg_prof_sample:19,prof_accum:true"
#else
#define PROFILES ""
#endif

extern const char *malloc_conf;
const char *malloc_conf = "narenas:1,dirty_decay_ms:100,muzzy_decay_ms:0,lg_tcache_max:17" PROFILES;
