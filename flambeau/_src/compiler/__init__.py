"""From a function to a program: joint graph, partition, fusion, assembly.

Only a driver knows the order.
"""
