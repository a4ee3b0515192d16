"""The broker's settings.

keys/                  the table of all settings, a module for each family
properties, listeners  read a .properties file, and the settings that list listeners
broker_config          parses and checks all settings: of the file, of the command line, and dynamic ones
rules, security        check what several settings must be together; refuse the settings of a secured broker
parts                  applies them: converts them into the settings of logs, cleaner, network and ZooKeeper client
dynamic, dynamic_keys  change them while the broker runs; say which settings can be changed
topics                 the settings of topics, applied to the logs
alter, describe        the work of the requests that change settings, and of DescribeConfigs
docs                   writes docs/configuration.md
"""
