"""Storage in HDFS, through WebHDFS: HTTP to a NameNode, which sends clients on to its DataNodes. Needs no Java and no library."""
