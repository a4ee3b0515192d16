"""What a message is: record batches, compression, control records, and regions of the files that hold them."""
