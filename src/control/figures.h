/* The figures of a snapshot that are one number each, declared once. /metrics exposes those with a
 * metric; /status, and with it the live page, `millrace status` and `millrace top`, has those with
 * a name. */
#pragma once

#include "control/monitor.h"

enum mr_figure_kind {
    MR_FIGURE_BOOL,
    MR_FIGURE_U32,
    MR_FIGURE_U64,
    MR_FIGURE_I64,
    MR_FIGURE_F32,
    MR_FIGURE_F64,
    MR_FIGURE_NS,  /* shown in seconds */
    MR_FIGURE_LSN, /* a number of bytes in metrics, "16/B374D848" in /status */
};

struct mr_figure {
    int metric;                 /* enum mr_metric_id; MR_METRIC_COUNT: none */
    const char *section, *name; /* in /status; no section: in its object; no name: not there */
    enum mr_figure_kind kind;
    size_t at;   /* in the snapshot */
    size_t when; /* where there is a bool without which the metric has no sample; 0: always */
};

extern const struct mr_figure mr_figures[];
extern const size_t mr_figure_count;

struct mr_figure_value {
    bool is_there; /* false: the metric has no sample */
    bool is_whole; /* it is `whole`, exactly */
    uint64_t whole;
    double number; /* in any case */
};

struct mr_figure_value mr_figure_value(const struct mr_figure *figure,
                                       const struct mr_monitor_snapshot *snapshot);
