// Reads each change of a topic once, whatever crashes: consume-once BROKERS TOPIC FILE [IDLE_SECONDS]. A batch is one line of FILE:
// its results, then for each partition the highest mr-pos and the next offset. A line that was cut does not count.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type mark struct {
	position string
	next     int64
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func number(text string) int64 {
	value, err := strconv.ParseInt(text, 10, 64)
	must(err)
	return value
}

// What FILE says. A line that was cut is removed from it.
func load(path string) (*os.File, map[int32]mark) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	must(err)
	text, err := os.ReadFile(path)
	must(err)
	whole, marks := strings.LastIndex(string(text), "\n")+1, map[int32]mark{}
	for _, line := range strings.Split(string(text[:whole]), "\n") {
		for _, word := range strings.Fields(line[strings.LastIndex(line, "\t")+1:]) {
			parts := strings.Split(word, ":")
			marks[int32(number(parts[0]))] = mark{parts[1], number(parts[2])}
		}
	}
	must(file.Truncate(int64(whole)))
	return file, marks
}

// Where each partition is read from: FILE knows, other partitions are read from their beginning.
func places(client *kgo.Client, topic string, marks map[int32]mark) map[int32]kgo.Offset {
	asked, request := kmsg.NewMetadataRequestTopic(), kmsg.NewPtrMetadataRequest()
	asked.Topic = &topic
	request.Topics = append(request.Topics, asked)
	answer, err := request.RequestWith(context.Background(), client)
	must(err)
	found := map[int32]kgo.Offset{}
	for _, partition := range answer.Topics[0].Partitions {
		found[partition.Partition] = kgo.NewOffset().AtStart()
		if known, ok := marks[partition.Partition]; ok {
			found[partition.Partition] = kgo.NewOffset().At(known.next)
		}
	}
	return found
}

func position(record *kgo.Record) string {
	for _, header := range record.Headers {
		if header.Key == "mr-pos" {
			return string(header.Value)
		}
	}
	return ""
}

func main() {
	topic, idle := os.Args[2], int64(1<<30)
	if len(os.Args) > 4 {
		idle = number(os.Args[4])
	}
	file, marks := load(os.Args[3])
	client, err := kgo.NewClient(kgo.SeedBrokers(os.Args[1]),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),  // rows that retention removed unread are an error
		kgo.FetchIsolationLevel(kgo.ReadCommitted())) // the default is ReadUncommitted
	must(err)
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: places(client, topic, marks)})
	dropped, heard := 0, time.Now()
	for time.Since(heard) < time.Duration(idle)*time.Second {
		wait, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		batch := client.PollRecords(wait, 500)
		cancel()
		batch.EachError(func(_ string, _ int32, err error) {
			if err != context.DeadlineExceeded {
				log.Fatal(err)
			}
		})
		keys, moved := "", map[int32]bool{}
		batch.EachRecord(func(record *kgo.Record) {
			place, highest := position(record), marks[record.Partition].position
			if place == "" || place > highest { // "": written by another program, before millrace
				keys += string(record.Key) + "\t"
				if place != "" {
					highest = place
				}
			} else {
				dropped++
			}
			marks[record.Partition] = mark{highest, record.Offset + 1}
			moved[record.Partition] = true
		})
		if len(moved) > 0 {
			words := []string{}
			for partition := range moved {
				words = append(words, fmt.Sprintf("%d:%s:%d", partition, marks[partition].position, marks[partition].next))
			}
			_, err = file.WriteString(keys + "\t" + strings.Join(words, " ") + "\n")
			must(err)
			heard = time.Now()
		}
	}
	fmt.Println(dropped, "repeats dropped")
}
