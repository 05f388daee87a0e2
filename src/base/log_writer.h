/* Where log lines go: to standard error, from a thread of their own.
 *
 * The thread that logs copies its line into a slot of a fixed ring and goes on; it waits for
 * another thread's copy at most, whatever standard error is (a pipe without a reader, a terminal
 * that was stopped, a disk that hangs). A full ring drops the line and counts it, and once lines
 * are taken again a line says how many are missing. Before the thread runs, and after, lines are
 * written directly, if standard error takes them at once. Inside base/ only. */
#pragma once

#include "base/base.h"

enum { MR_LOG_LINE_MAX = 4096 };

/* One whole line. Waits for another thread's copy at most, never for standard error; asks for no
 * memory. Any thread. */
void mr_log_emit(const char *line, size_t len);

/* In log.c, which knows the format: the line that reports `dropped` lines; answers its length. */
size_t mr_log_format_dropped(char line[MR_LOG_LINE_MAX], uint64_t dropped);
