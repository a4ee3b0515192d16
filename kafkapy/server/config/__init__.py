"""The broker's settings.

keys/                  the table of all settings, a module for each family
properties, listeners  read a .properties file, and parse the settings that list listeners
broker_config          parses and checks all settings: of the file, of the command line, and dynamic ones
rules, security        check rules between several settings; refuse unsupported settings of a secured broker
sasl, authorization    parse and check the settings of SASL listeners and of the authorizer
apply                  converts the broker's settings into those of logs, cleaner, network and ZooKeeper client
dynamic, dynamic_keys  change settings while the broker runs; define which settings can be changed
stored_passwords       encrypts the passwords among the dynamic settings
topics                 stores the settings of topics and applies them to the logs
alter, describe        do the work of the requests that change settings, and of DescribeConfigs
kafka07                reads the server.properties of Kafka 0.7
docs                   writes docs/configuration.md
"""
