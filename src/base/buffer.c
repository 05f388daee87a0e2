#include "base/buffer.h"

void mr_buffer_format(struct mr_buffer *buffer, const char *format, ...)
{
    size_t room = (size_t)(buffer->end - buffer->at);
    va_list arguments;
    va_start(arguments, format);
    size_t len = (size_t)vsnprintf((char *)buffer->at, room, format, arguments);
    va_end(arguments);
    buffer->full |= len >= room;
    buffer->at += buffer->full ? 0 : len;
}
