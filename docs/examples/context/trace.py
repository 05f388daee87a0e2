"""A trace that goes through millrace: from the statement that writes a row to the consumer that reads it.

    python trace.py write "dbname=shop" "INSERT INTO orders (id) VALUES (1)"
    python trace.py read localhost:9092 shop.public.orders

Needs context.headers = ["traceparent", "user"], and

    pip install --pre psycopg[binary] confluent-kafka opentelemetry-sdk opentelemetry-instrumentation-confluent-kafka

(without --pre pip takes an instrumentation that is too old for the client). Each prints its spans: "handle" has the writer's trace_id, and the
instrumentation's own span a link to it."""

import json
import sys

import confluent_kafka
import psycopg
from opentelemetry import propagate, trace
from opentelemetry.instrumentation.confluent_kafka import ConfluentKafkaInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

trace.set_tracer_provider(TracerProvider())
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter()))
TRACER = trace.get_tracer("shop")


def write(server, statement):
    """The context first, in the transaction of the rows."""
    with TRACER.start_as_current_span("order"), psycopg.connect(server) as connection:
        context = {"user": "u-17"}
        propagate.inject(context)  # adds traceparent
        connection.execute("SELECT pg_logical_emit_message(true, 'millrace.context', %s::text)", [json.dumps(context)])
        connection.execute(statement)


def read(brokers, topic):
    ConfluentKafkaInstrumentor().instrument()
    consumer = confluent_kafka.Consumer({"bootstrap.servers": brokers, "group.id": "trace.py", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    while True:
        record = consumer.poll(1)
        if record is None or record.error():
            continue
        headers = {name: value.decode() for name, value in record.headers() or [] if value is not None}
        with TRACER.start_as_current_span("handle", context=propagate.extract(headers)) as span:
            span.set_attribute("user", headers.get("user", ""))  # the work for the row


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](*sys.argv[2:])
