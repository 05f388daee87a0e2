#include "report.h"

#include <inttypes.h>

#include "base/base.h"

static const struct {
    const char *name;
    double share;
} quantiles[] = {{"p50", .5}, {"p90", .9}, {"p99", .99}, {"p99.9", .999}};

static double ms(uint64_t us)
{
    return (double)us / 1000;
}

static double rate(uint64_t events, double seconds)
{
    return seconds > 0 ? (double)events / seconds : 0;
}

static void text_histogram(const char *name, const struct load_histogram *histogram, FILE *out)
{
    if (load_histogram_count(histogram) == 0) {
        return;
    }
    fprintf(out, "%-20smean %.1f ms, ", name, load_histogram_mean_us(histogram) / 1000);
    for (size_t i = 0; i < MR_ARRAY_LEN(quantiles); i++) {
        fprintf(out, "%s %.1f ms, ", quantiles[i].name,
                ms(load_histogram_quantile(histogram, quantiles[i].share)));
    }
    fprintf(out, "max %.1f ms\n", ms(histogram->max_us));
}

static void text_ramp(const struct load_report *report, FILE *out)
{
    double held = 0;
    fprintf(out, "%14s %12s %12s %12s %12s\n", "offered/s", "written/s", "delivered/s", "p99 ms",
            "in flight");
    for (int i = 0; i < report->step_count; i++) {
        const struct load_step *step = &report->steps[i];
        fprintf(out, "%14.0f %12.0f %12.0f %12.1f %12" PRIu64 "%s\n", step->offered, step->written,
                step->delivered, step->p99_ms, step->in_flight, step->held ? "" : "  breaks");
        held = step->held ? step->offered : held;
    }
    fprintf(out, "%-20s%.0f events/s held; %s\n", "breaking point", held,
            report->limit == NULL ? "not reached: the ramp ended first" : report->limit);
}

void load_report_text(const struct load_report *report, FILE *out)
{
    fprintf(out, "%-20s%s%s\n", "scenario", load_scenario_name(report->options->scenario),
            report->interrupted ? ", interrupted" : "");
    fprintf(out,
            "%-20s%" PRIu64 " committed, %" PRIu64 " delivered, %" PRIu64 " failed, %" PRIu64
            " repeated\n",
            "events", report->committed, report->delivered, report->failed, report->repeated);
    fprintf(out, "%-20s%.2f s in all, %.2f s of writing, %.2f s to drain\n", "duration",
            report->total_s, report->write_s, report->drain_s);
    fprintf(
        out, "%-20s%.0f events/s delivered, %.0f events/s written, %.1f µs an event on average\n",
        "rate", rate(report->delivered, report->total_s), rate(report->committed, report->write_s),
        report->delivered == 0 ? 0 : report->total_s * 1e6 / (double)report->delivered);
    text_histogram("due to commit", &report->commit, out);
    text_histogram("commit to Kafka", &report->latency, out);
    text_histogram("due to Kafka", &report->response, out);
    fprintf(out, "%-20s%s\n", "",
            "times of single events; the first two means add up to the third, percentiles don't");
    fprintf(out, "%-20s%" PRIu64 " events in flight", "peaks", report->in_flight_peak);
    if (report->memory_peak > 0) {
        fprintf(out, ", %.1f MB of memory", (double)report->memory_peak / 1e6);
    }
    if (report->retained_peak > 0) {
        fprintf(out, ", %.1f MB of WAL held by the slot", (double)report->retained_peak / 1e6);
    }
    fprintf(out, "; %" PRIu64 " transactions began late\n", report->late_transactions);
    if (report->options->scenario == LOAD_BURST) {
        if (report->absorb_s > 0) {
            fprintf(out, "%-20sabsorbed %.2f s after it began\n", "burst", report->absorb_s);
        } else {
            fprintf(out, "%-20snot absorbed while the load ran\n", "burst");
        }
    }
    if (report->options->scenario == LOAD_RAMP) {
        text_ramp(report, out);
    }
    if (report->broken != NULL) {
        fprintf(out, "%-20s%s\n", "result", report->broken);
    }
    if (!report->complete) {
        fprintf(out, "%-20sNOT everything arrived\n", "result");
    }
}

static void json_histogram(const char *name, const struct load_histogram *histogram, FILE *out)
{
    fprintf(out, "  \"%s\": {\"count\": %" PRIu64 ", \"mean\": %.3f", name,
            load_histogram_count(histogram), load_histogram_mean_us(histogram) / 1000);
    for (size_t i = 0; i < MR_ARRAY_LEN(quantiles); i++) {
        fprintf(out, ", \"%s\": %.3f", quantiles[i].name,
                ms(load_histogram_quantile(histogram, quantiles[i].share)));
    }
    fprintf(out, ", \"max\": %.3f},\n", ms(histogram->max_us));
}

static void json_steps(const struct load_report *report, FILE *out)
{
    double held = 0;
    fputs("  \"steps\": [", out);
    for (int i = 0; i < report->step_count; i++) {
        const struct load_step *step = &report->steps[i];
        fprintf(
            out,
            "%s\n    {\"offered\": %.0f, \"written\": %.0f, \"delivered\": %.0f, \"p99_ms\": %.3f, "
            "\"in_flight\": %" PRIu64 ", \"held\": %s}",
            i == 0 ? "" : ",", step->offered, step->written, step->delivered, step->p99_ms,
            step->in_flight, step->held ? "true" : "false");
        held = step->held ? step->offered : held;
    }
    fprintf(out,
            "],\n  \"breaking_point\": {\"held_events_per_s\": %.0f, \"reached\": %s, "
            "\"limit\": \"%s\"},\n",
            held, report->limit != NULL ? "true" : "false",
            report->limit != NULL ? report->limit : "");
}

void load_report_json(const struct load_report *report, FILE *out)
{
    const struct load_options *options = report->options;
    fprintf(
        out,
        "{\n  \"scenario\": \"%s\",\n  \"options\": {\"rate\": %.0f, \"connections\": %u, "
        "\"tables\": %u, \"transaction\": %u, \"row_bytes\": %u, \"mix\": [%u, %u, %u], \"skew\": "
        "%g, \"seed\": %" PRIu64 "},\n",
        load_scenario_name(options->scenario), options->rate, options->connections, options->tables,
        options->transaction_rows, options->row_bytes, options->mix[0], options->mix[1],
        options->mix[2], options->skew, options->seed);
    fprintf(out,
            "  \"events\": %" PRIu64 ",\n  \"delivered\": %" PRIu64 ",\n  \"failed\": %" PRIu64
            ",\n  \"repeated\": %" PRIu64 ",\n  \"late_transactions\": %" PRIu64 ",\n",
            report->committed, report->delivered, report->failed, report->repeated,
            report->late_transactions);
    fprintf(
        out,
        "  \"duration_s\": %.6f,\n  \"write_s\": %.6f,\n  \"drain_s\": %.6f,\n  \"absorb_s\": "
        "%.6f,\n  \"events_per_s\": %.1f,\n  \"written_per_s\": %.1f,\n  \"average_us\": %.3f,\n",
        report->total_s, report->write_s, report->drain_s, report->absorb_s,
        rate(report->delivered, report->total_s), rate(report->committed, report->write_s),
        report->delivered == 0 ? 0 : report->total_s * 1e6 / (double)report->delivered);
    json_histogram("latency_ms", &report->latency, out);
    json_histogram("response_ms", &report->response, out);
    json_histogram("commit_ms", &report->commit, out);
    fprintf(out,
            "  \"in_flight_peak\": %" PRIu64 ",\n  \"memory_peak_bytes\": %" PRIu64
            ",\n  \"slot_retained_peak_bytes\": %" PRIu64 ",\n",
            report->in_flight_peak, report->memory_peak, report->retained_peak);
    if (options->scenario == LOAD_RAMP) {
        json_steps(report, out);
    }
    fputs("  \"timeline\": [", out);
    for (size_t i = 0; i < report->sample_count; i++) {
        const struct load_sample *sample = &report->samples[i];
        fprintf(out, "%s\n    [%.2f, %" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 "]",
                i == 0 ? "" : ",", sample->at_s, sample->committed, sample->delivered,
                sample->retained, sample->memory);
    }
    fputs("],\n", out);
    if (options->scenario == LOAD_BURST) {
        fprintf(out, "  \"burst_s\": [%.6f, %.6f],\n", report->burst_from_s, report->burst_to_s);
    }
    fprintf(out, "  \"begin_ns\": %" PRId64 ",\n  \"complete\": %s,\n  \"interrupted\": %s\n}\n",
            report->begin_ns, report->complete ? "true" : "false",
            report->interrupted ? "true" : "false");
}
