#include "kafka/kafka_now.h"

#ifdef MILLRACE_RDKAFKA_SEND_NOW

void mr_kafka_now(rd_kafka_topic_t *topic, int32_t partition)
{
    /* A partition that librdkafka does not know yet has linger.ms. */
    (void)rd_kafka_topic_send_now(topic, partition);
}

void mr_kafka_now_all(rd_kafka_t *producer)
{
}

#else

void mr_kafka_now(rd_kafka_topic_t *topic, int32_t partition)
{
}

/* With delivery reports as events it sleeps its whole time: nobody takes them meanwhile
 * (rd_kafka_flush). */
void mr_kafka_now_all(rd_kafka_t *producer)
{
    rd_kafka_flush(producer, 1);
}

#endif
