SELECT [from], [two words] AS [select], a.[two words] + 1 AS [a.b], [a.b] AS dotted INTO [out] FROM [a] TIMESTAMP BY [at] WHERE [group] = 'x'
