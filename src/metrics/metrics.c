#include "metrics/metrics.h"

#include <math.h>

#include "base/json.h"
#include "base/markdown.h"

static const struct mr_metric metrics[] = {
#define MR_METRIC(id, name, type, unit, labels, help, meaning)                                     \
    {name, MR_METRIC_##type, unit, labels, help, meaning},
#include "metrics/metrics.def"
#undef MR_METRIC
};

static const char *const type_names[] = {
    [MR_METRIC_COUNTER] = "counter",
    [MR_METRIC_GAUGE] = "gauge",
    [MR_METRIC_HISTOGRAM] = "histogram",
};

const struct mr_metric *mr_metric_at(enum mr_metric_id id)
{
    MR_ASSERT(id < MR_METRIC_COUNT);
    return &metrics[id];
}

void mr_expose_begin(struct mr_exposition *exposition, enum mr_metric_id id)
{
    const struct mr_metric *metric = mr_metric_at(id);
    exposition->id = id;
    mr_buffer_format(exposition->out, "# HELP %s %s\n# TYPE %s %s\n", metric->name, metric->help,
                     metric->name, type_names[metric->type]);
}

/* A label's value may hold any UTF-8; backslash, quote and line feed are escaped. What is no UTF-8
 * (a table's name in a strange encoding) would make the whole text invalid. */
static void append_label_value(struct mr_buffer *out, const char *value)
{
    const uint8_t *at = (const uint8_t *)value;
    size_t left = strlen(value);
    while (left > 0) {
        size_t len = mr_utf8_sequence(at, left);
        if (len == 0) {
            MR_BUFFER_LITERAL(out, "\xef\xbf\xbd");
            len = 1;
        } else if (*at == '\n') {
            MR_BUFFER_LITERAL(out, "\\n");
        } else {
            if (*at == '"' || *at == '\\') {
                MR_BUFFER_LITERAL(out, "\\");
            }
            mr_buffer_append(out, at, len);
        }
        at += len;
        left -= len;
    }
}

/* `{a="x",b="y"}` with `le` after the others if it is not NULL; nothing when there are none. */
static void append_labels(const struct mr_exposition *exposition, const char *const *values,
                          const char *le)
{
    struct mr_buffer *out = exposition->out;
    const char *name = metrics[exposition->id].labels;
    const char *before = "{";
    MR_ASSERT((values == NULL) == (name[0] == '\0'));
    for (size_t len; *name != '\0'; name += len + (name[len] == ',')) {
        len = strcspn(name, ",");
        mr_buffer_slice(out, mr_slice_of(before));
        mr_buffer_append(out, name, len);
        MR_BUFFER_LITERAL(out, "=\"");
        append_label_value(out, *values++);
        MR_BUFFER_LITERAL(out, "\"");
        before = ",";
    }
    if (le != NULL) {
        mr_buffer_format(out, "%sle=\"%s\"", before, le);
    }
    if (le != NULL || values != NULL) {
        MR_BUFFER_LITERAL(out, "}");
    }
}

static void metrics_append_name(const struct mr_exposition *exposition, const char *suffix,
                                const char *const *values, const char *le)
{
    mr_buffer_slice(exposition->out, mr_slice_of(metrics[exposition->id].name));
    mr_buffer_slice(exposition->out, mr_slice_of(suffix));
    append_labels(exposition, values, le);
    MR_BUFFER_LITERAL(exposition->out, " ");
}

static void format_f64(char *text, size_t size, double value)
{
    if (isinf(value)) {
        snprintf(text, size, value > 0 ? "+Inf" : "-Inf");
    } else if (isnan(value)) {
        snprintf(text, size, "NaN");
    } else {
        snprintf(text, size, "%.12g", value);
    }
}

static void append_f64(struct mr_buffer *out, double value)
{
    char text[32];
    format_f64(text, sizeof(text), value);
    mr_buffer_slice(out, mr_slice_of(text));
    MR_BUFFER_LITERAL(out, "\n");
}

static void append_u64(struct mr_buffer *out, uint64_t value)
{
    mr_json_u64(out, value);
    MR_BUFFER_LITERAL(out, "\n");
}

void mr_expose_u64(struct mr_exposition *exposition, const char *const *values, uint64_t value)
{
    metrics_append_name(exposition, "", values, NULL);
    append_u64(exposition->out, value);
}

void mr_expose_f64(struct mr_exposition *exposition, const char *const *values, double value)
{
    metrics_append_name(exposition, "", values, NULL);
    append_f64(exposition->out, value);
}

void mr_expose_ns(struct mr_exposition *exposition, const char *const *values, uint64_t ns)
{
    mr_expose_f64(exposition, values, (double)ns / 1e9);
}

void mr_expose_histogram(struct mr_exposition *exposition, const char *const *values,
                         const struct mr_histogram_view *view)
{
    struct mr_buffer *out = exposition->out;
    uint64_t below = 0;
    char le[32];
    for (uint32_t i = 0; i < mr_histogram_bound_count(view->layout); i++) {
        below += view->counts[i];
        format_f64(le, sizeof(le), mr_histogram_bound(view->layout, i));
        metrics_append_name(exposition, "_bucket", values, le);
        append_u64(out, below);
    }
    metrics_append_name(exposition, "_bucket", values, "+Inf");
    append_u64(out, view->count);
    metrics_append_name(exposition, "_sum", values, NULL);
    append_f64(out, (double)view->sum / mr_histogram_divisor(view->layout));
    metrics_append_name(exposition, "_count", values, NULL);
    append_u64(out, view->count);
}

void mr_expose_one_u64(struct mr_exposition *exposition, enum mr_metric_id id, uint64_t value)
{
    mr_expose_begin(exposition, id);
    mr_expose_u64(exposition, NULL, value);
}

void mr_expose_one_ns(struct mr_exposition *exposition, enum mr_metric_id id, uint64_t ns)
{
    mr_expose_begin(exposition, id);
    mr_expose_ns(exposition, NULL, ns);
}

void mr_metrics_print_reference(FILE *to)
{
    fputs("# Metrics\n\n"
          "<!-- Made by `millrace reference metrics`; a test compares the two. -->\n\n"
          "What `/metrics` holds, in Prometheus' text form. Counters begin at 0 with the process; "
          "those of the Kafka\n"
          "client begin again with each session of the sink.\n",
          to);
    for (uint32_t i = 0; i < MR_METRIC_COUNT; i++) {
        const struct mr_metric *metric = &metrics[i];
        fprintf(to, "\n## `%s`\n\n%s%s%s%s%s.\n\n", metric->name, type_names[metric->type],
                metric->unit[0] != '\0' ? ", " : "", metric->unit,
                metric->labels[0] != '\0' ? "; labels " : "", metric->labels);
        mr_markdown_print(metric->help, to);
        fputs(metric->meaning[0] != '\0' ? " " : "", to);
        mr_markdown_print(metric->meaning, to);
        fputc('\n', to);
    }
}
