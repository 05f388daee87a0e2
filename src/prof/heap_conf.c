/* What jemalloc reads before main: profiling may be switched on later (which it could not otherwise), at one
 * sample in 512 KiB. Until then it costs 0.3 % of a malloc and free. MALLOC_CONF in the environment comes after
 * and wins. Linked into the program only, so that tools and tests stay as they are. */
extern const char *malloc_conf;
const char *malloc_conf = "prof:true,prof_active:false,lg_prof_sample:19,prof_accum:true";
